"""What Reprieve decides: pure values and functions, standard library only."""
