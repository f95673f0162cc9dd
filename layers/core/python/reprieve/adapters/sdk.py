"""
botocore with models of what we call and no more.

botocore's own models describe everything that a service can do: reading EC2's takes longer
than all our imports. ``service_models`` holds the same models cut down to our operations,
written by ``layers/models/generate.py``. They come first, and add to botocore's: what isn't
there, like another service or an endpoint's rules, is still read from botocore.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from botocore.loaders import Loader
from botocore.session import Session

MODELS = Path(__file__).with_name("service_models")


class TrimmedLoader(Loader):
    """Finds our models without a walk over the 400 services that botocore knows."""

    def __init__(self, preferred: Sequence[str] = ()) -> None:
        super().__init__(extra_search_paths=[*preferred, str(MODELS)])
        self._versions = {folder.parent.name: folder.name for folder in MODELS.glob("*/*")}

    def load_service_model(
        self, service_name: str, type_name: str, api_version: str | None = None
    ) -> Any:
        version = self._versions.get(service_name)
        if version is None or api_version not in (None, version):
            return super().load_service_model(service_name, type_name, api_version)
        return self.load_data(f"{service_name}/{version}/{type_name}")

    def is_builtin_path(self, path: str) -> bool:
        """
        Count our endpoints as botocore's: they are, word for word.

        For anybody else's botocore gives up its rules, and with them FIPS and dual stack.
        """
        return path.startswith(str(MODELS)) or super().is_builtin_path(path)


def session(region: str | None = None) -> Session:
    """
    Return a session over the trimmed models.

    The SDK's own variables and files decide about the rest, *region* included when it is
    None. Models in ``AWS_DATA_PATH`` come before ours.
    """
    made = Session()
    if region is not None:
        made.set_config_variable("region", region)
    made.register_component("data_loader", TrimmedLoader(_preferred(made)))
    return made


def client(session: Session, service: str, **options: Any) -> Any:
    """Return a client of botocore's own; boto3, which would add 3 MiB, isn't between."""
    return session.create_client(service, **options)


class Later:
    """In place of a client: the client is made when something is first asked of it."""

    def __init__(self, make: Callable[[], Any]) -> None:
        self._make = make
        self._making = threading.Lock()
        self._made: Any = None

    def __getattr__(self, name: str) -> Any:
        """Pass everything on."""
        with self._making:
            if self._made is None:
                self._made = self._make()
        return getattr(self._made, name)


def _preferred(made: Session) -> list[str]:
    """Return the folders of ``AWS_DATA_PATH``, read as botocore reads it."""
    named: str = made.get_config_variable("data_path") or ""
    folders = filter(None, named.split(os.pathsep))
    return [str(Path(os.path.expandvars(folder)).expanduser()) for folder in folders]
