"""The engine of a recorded run, which later commands on the run use too."""

import re
from typing import Literal

from pydantic import BaseModel, ConfigDict, field_validator

_USER = re.compile(r"(?<=://)[^/@]*@")


class RunEngine(BaseModel):
    """The engine with which a run was started."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    kind: str
    """Name of the engine's entry point, such as `docker`."""
    id: str = ""
    """Identifier of the engine; empty if it has none."""
    address: str = ""
    """Where the engine was reached, without a password; empty if it needs no address."""
    version: str = ""
    transfer: Literal["mounts", "streams"] | None = None
    """How files got into containers; None in records of older versions."""

    @field_validator("address")
    @classmethod
    def _without_user(cls, address: str) -> str:
        # An address for ssh has a user, who is needed, but never a password.
        return address if address.startswith("ssh://") else _USER.sub("", address)

    def is_same(self, kind: str, id: str) -> bool:
        """Return whether an engine of this kind and with this identifier is the run's."""
        return (kind, id) == (self.kind, self.id)
