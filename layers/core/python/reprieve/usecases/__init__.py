"""One module per thing that Reprieve does; each carries decisions out through ports."""
