"""The network of a sandbox that stays: what it reaches, and how that becomes less."""

from orchestrator.base.errors import ConfigError, NotRunningError, UnsupportedError
from orchestrator.engine.interface.protocol import Container, ContainerEngine, CuttingEngine
from orchestrator.sandbox.home import Home
from orchestrator.sandbox.models import NetworkKind


class BoxNetwork:
    """What a sandbox reaches. It is never wider than what the sandbox was created with."""

    def __init__(
        self, home: Home, created: NetworkKind, engine: ContainerEngine, container: Container
    ) -> None:
        """Store the arguments.

        Args:
            home: The directory of the sandbox.
            created: The network that the sandbox was created with.
            engine: The engine.
            container: The sandbox's container.
        """
        self._home = home
        self._created = created
        self._engine = engine
        self._container = container

    @property
    def kind(self) -> NetworkKind:
        """Return what the sandbox reaches now: `none`, `allowlist` or `open`."""
        try:
            return self._created if self._home.network else "none"
        except OSError:
            return "none"

    def set(self, kind: NetworkKind) -> None:
        """Take the network away for good, with `none`; the kind that it has changes nothing.

        When the call returns, nothing passes any more, also over connections that were open: the
        next byte that a command sends over one resets it. Names are not resolved any more.

        Raises:
            ConfigError: The kind is wider than the sandbox's, or is another one than `none`.
            NotRunningError: The sandbox has ended.
            EngineError: The network could not be taken away; nothing has changed.
            UnsupportedError: The engine cannot do this.
        """
        if self._home.is_gone:
            raise NotRunningError("the sandbox has ended", key="sandbox.ended")
        if kind == self.kind:
            return
        # protection: network-of-sandbox-never-wider
        if kind != "none":
            raise ConfigError(
                f"the network of a sandbox cannot become `{kind}`, only `none`",
                key="sandbox.network-wider",
            )
        if not isinstance(self._engine, CuttingEngine):
            raise UnsupportedError(
                "this engine cannot take the network of a running container away",
                key="sandbox.network-cut",
            )
        network = self._home.network
        # First, because whoever watches the sandbox ends it when it loses a network that it has.
        self._home.use_network("")
        try:
            self._engine.cut_off(self._container.id)
        except BaseException:
            self._home.use_network(network)
            raise
