"""Check that the machine has the CPUs and the memory that a run requests."""

from collections.abc import Iterator, Sequence

from orchestrator.base.errors import ConfigError
from orchestrator.base.text.quantities import size
from orchestrator.config.settings.run import ParallelConfig
from orchestrator.config.sizing import Demand, demand, largest, memory_was_chosen, room_for
from orchestrator.engine.interface.features import EngineFeatures


def machine_problems(config: ParallelConfig, features: EngineFeatures) -> Iterator[ConfigError]:
    """Yield an error for each resource of a worker that the engine's machine does not have."""
    cpus, memory = config.limits.cpus, config.limits.memory
    # protection: cpus-above-machines-refused
    if cpus is not None and cpus > features.cpus:
        yield ConfigError(
            f"`cpus` is {cpus:g}, which is more than the engine has",
            key="machine.too-small",
            hint=f"use at most {features.cpus}",
        )
    # protection: memory-above-machines-refused
    if memory > features.memory and memory_was_chosen(config):
        yield ConfigError(
            f"`memory` is {size(memory)}, which is more than the engine has",
            key="machine.too-small",
            hint=f"use at most {features.memory // 1024**2}m",
        )
    for name, service in config.project.services.items():
        if service.cpus > features.cpus or service.memory > features.memory:
            yield ConfigError(
                f"the limits of service `{name}` are more than the engine has",
                key="machine.too-small",
                hint=f"use at most {features.cpus} CPUs and {features.memory // 1024**2}m",
            )


def crowding(
    config: ParallelConfig, features: EngineFeatures, demands: Sequence[Demand] = ()
) -> str | None:
    """Return a notice if all workers together need more CPUs or memory than the machine has.

    `demands` are the resources of each worker, if they differ.
    """
    each = demands or [demand(config, cpus=features.cpus)] * config.workers
    fit = room_for(each, cpus=features.cpus, memory=features.memory)
    most = max(config.limits.memory, *(demand.memory for demand in each))
    has = f"the machine has {features.cpus} CPUs and {size(features.memory)} RAM"
    if most > features.memory and not config.project.services:
        return (
            f"a worker may use {size(most)}, but the machine has "
            f"{size(features.memory)} RAM: reduce it with `--memory`"
        )
    # protection: crowded-machine-is-reported
    if config.auto_workers or config.workers <= fit:
        return None
    together = largest(each, config.workers)
    cpus, memory = (
        sum(demand.cpus for demand in together),
        sum(demand.memory for demand in together),
    )
    services = " with their services" if config.project.services else ""
    return (
        f"{config.workers} workers{services} need about {cpus:g} CPUs and {size(memory)}, {has}: "
        f"room for `--workers {fit}`"
    )


def roominess(
    config: ParallelConfig, features: EngineFeatures, demands: Sequence[Demand] = ()
) -> str | None:
    """Return a notice about the number of workers for `--workers auto`; None for a fixed number.

    `demands` are the resources of each worker, if they differ.
    """
    if not config.auto_workers:
        return None
    each = demands or [demand(config, cpus=features.cpus)] * config.workers
    fit = room_for(each, cpus=features.cpus, memory=features.memory)
    least = "" if len({*each}) == 1 else " at least"
    cpus, memory = ({demand[place] for demand in each} for place in (0, 1))
    many = " to ".join(dict.fromkeys(f"{number:g}" for number in (min(cpus), max(cpus))))
    sizes = " to ".join(dict.fromkeys(size(int(number)) for number in (min(memory), max(memory))))
    return (
        f"`--workers auto`: a worker needs about {many} CPUs and {sizes}, the machine has "
        f"{features.cpus} CPUs and {size(features.memory)} RAM: "
        f"room for{least} {fit} at the same time"
    )
