"""Check that nothing is left of a run after the user has cleaned up."""

import subprocess

import docker

from tests.assurance.attacks.target import Target


def clean_up(target: Target, harms: list[str]) -> None:
    """Clean up as the user would, and add everything that is left to the harms."""
    command = (target.caller.python, "-m", "orchestrator", "parallel-cleanup", "--purge")
    try:
        target.caller.run(*command, cwd=target.path)
    except (AssertionError, subprocess.TimeoutExpired) as error:
        harms.append(f"clean-up: {str(error)[-500:]}")
    left = sorted(path.name for path in target.path.glob(".architect-parallel-*"))
    left += target.git("for-each-ref", "--format=%(refname)", "refs/heads/architect").splitlines()
    left += left_worker_directories(target)
    shared = target.path.glob(".git/orchestrator/checkouts/*")
    left += [str(path.relative_to(target.path)) for path in shared if path.name != "lock"]
    harms += [f"left after clean-up: {name}" for name in left]
    harms += [f"left in the engine: {name}" for name in left_in_engine(target)]
    # `shutil.rmtree` would exceed the recursion limit on deep trees.
    subprocess.run(["rm", "-rf", str(target.path)], check=True)


def left_worker_directories(target: Target) -> list[str]:
    """List directories of workers' state that are left."""
    runs = target.path / ".git" / "orchestrator" / "runs"
    found = (folder for folder in runs.glob("*/worker-*/*") if folder.is_dir())
    return sorted(f"{folder.parent.name}/{folder.name}" for folder in found)


def left_in_engine(target: Target) -> list[str]:
    """List the containers, networks and volumes that are left of a repository."""
    client = docker.APIClient(version="auto")
    try:
        ours = {"label": f"orchestrator.repository={target.path}/.git"}
        found = [item["Id"] for item in client.containers(all=True, filters=ours)]
        found += [item["Id"] for item in client.networks(filters=ours)]
        found += [item["Name"] for item in client.volumes(filters=ours)["Volumes"] or []]
    finally:
        client.close()
    return found
