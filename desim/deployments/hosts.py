"""The file of hosts: where the coordinator waits, and which host plays which agents.

port: 7077                # address: 0.0.0.0 and wait: 120 s unless others are given
hosts: {alpha: [0, 1, 2], beta: [3, 4]}
data: own                 # every host has its own agents' rows alone; same: all have all
"""

import json
import os
import re
import secrets
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from desim import units
from desim.deployments.certificates import Authority, Identity
from desim.deployments.wire import PROTOCOL
from desim.errors import InputError, show
from desim.readers import text_of

KEYS = ("address", "port", "wait", "hosts", "data")
DATA = ("same", "own")
NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")
OURS = ".desim"  # how names in certificates of the run itself end
LARGEST = 1 << 20  # bytes of an invitation
MINUTE = "%Y-%m-%d %H:%M UTC"


@dataclass(frozen=True)
class Hosts:
    """Where the coordinator waits (port 0: any), for `wait` s at most; agents by host.

    data: own where a host has the rows of its own agents alone, same where all have all.
    """

    address: str
    port: int
    wait: float
    agents: Mapping[str, tuple[int, ...]]
    data: str = "same"

    def host_of(self, agent: int) -> str:
        """Who plays an agent."""
        return next(name for name, own in self.agents.items() if agent in own)


@dataclass(frozen=True)
class Invitation:
    """What a host needs to take part, once."""

    host: str
    token: str
    identity: Identity


def read_hosts(path: Path, agents: int) -> Hosts:
    """What the file says of `agents` agents; InputError with all that is wrong."""
    from desim.scenario.load import read

    tree = read(path)
    data: Any = tree.data
    found = [f"{path}: {text}" for _, text in tree.problems]
    if not isinstance(data, Mapping):
        raise InputError(f"{path}: found no mapping; allowed: the keys {', '.join(KEYS)}")
    found += [
        f"{path}: {key}: unknown key; allowed: {', '.join(KEYS)}" for key in data.keys() - KEYS
    ]
    port, named = data.get("port", 0), data.get("hosts")
    if type(port) is not int or not 0 <= port < 1 << 16:
        found.append(f"{path}: port: found {show(port)}; allowed: 0 to 65535")
    if (rows := data.get("data", "same")) not in DATA:
        found.append(f"{path}: data: found {show(rows)}; allowed: {', '.join(DATA)}")
    if not isinstance(named, Mapping) or not named:
        found.append(f"{path}: hosts: allowed: {{NAME: [agents, ...], ...}}, at least one")
        raise InputError(found)
    wait = 120.0
    try:
        wait = units.seconds(data.get("wait", "120 s"))
    except ValueError as error:
        found.append(f"{path}: wait: {error}")
    found += _wrong(path, named, agents)
    if found:
        raise InputError(found)
    own = {str(name): tuple(numbers) for name, numbers in named.items()}
    return Hosts(str(data.get("address", "0.0.0.0")), port, wait, own, rows)


def _wrong(path: Path, named: Mapping[str, Any], agents: int) -> list[str]:
    """What is wrong with the agents of hosts."""
    found, owner = [], dict[int, str]()
    for name, numbers in named.items():
        where = f"{path}: hosts.{name}"
        if not NAME.fullmatch(str(name)):
            found.append(f"{where}: allowed: letters, digits, dots and dashes")
        elif str(name).lower().endswith(OURS):
            found.append(
                f"{where}: certificates of the run itself have such names; allowed: others"
            )
        if not isinstance(numbers, list) or not numbers:
            found.append(f"{where}: found {show(numbers)}; allowed: a list of agents")
            continue
        for i in numbers:
            if type(i) is not int or not 0 <= i < agents:
                found.append(f"{where}: found {show(i)}; allowed: agents 0 to {agents - 1}")
            elif i in owner:
                found.append(f"{where}: found agent {i}, which {owner[i]} plays; allowed: once")
            else:
                owner[i] = str(name)
    missing = [i for i in range(agents) if i not in owner]
    if missing and not found:
        found.append(
            f"{path}: hosts: found nobody who plays agent {missing[0]}; allowed: all agents"
        )
    return found


def invite(path: Path, hosts: Hosts, authority: Authority) -> dict[str, tuple[str, Path]]:
    """Write an invitation for each host beside the file of hosts; its token and place by host.

    Only their owner can read the files; they serve once, and until the authority's time is over.
    """
    made: dict[str, tuple[str, Path]] = {}
    for name in hosts.agents:
        file, token = path.parent / f"{name}.invitation", secrets.token_hex(16)
        identity = authority.identity(name)._asdict()
        about = {"desim": PROTOCOL, "host": name, "until": authority.until.timestamp()}
        text = json.dumps({**about, "token": token, **identity}, indent=1)
        partial = path.parent / f".{name}.invitation.{secrets.token_hex(4)}"
        try:
            handle = os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(handle, "w") as out:
                out.write(text)
            partial.replace(file)
        except OSError as error:
            partial.unlink(missing_ok=True)
            withdraw(made)
            raise InputError(f"{file}: cannot be written ({error.strerror})") from None
        made[name] = token, file
    return made


def withdraw(made: Mapping[str, tuple[str, Path]]) -> None:
    """Remove what `invite` wrote, but nothing that another deployment has written since."""
    for token, file in made.values():
        with suppress(OSError, ValueError):
            if token in text_of(file):
                file.unlink()


def read_invitation(path: Path) -> Invitation:
    """What `invite` wrote; InputError where it is something else."""
    try:
        if path.stat().st_size > LARGEST:
            raise ValueError
        data = json.loads(text_of(path))
        if data["desim"] != PROTOCOL:
            text = f"of protocol {data['desim']}, and this desim has {PROTOCOL}"
            raise InputError(
                f"{path}: an invitation {text}; allowed: the same version on all hosts"
            )
        identity = Identity(*(str(data[name]) for name in Identity._fields))
        if time.time() > (until := float(data["until"])):
            text = f"an invitation that ended at {time.strftime(MINUTE, time.gmtime(until))}"
            raise InputError(f"{path}: {text}; allowed: one of a run that waits now")
        return Invitation(str(data["host"]), str(data["token"]), identity)
    except OSError as error:
        raise InputError(f"{path}: cannot be read ({error.strerror})") from None
    except (ValueError, KeyError, TypeError, RecursionError, OverflowError):
        raise InputError(f"{path}: not an invitation of desim deploy, or damaged") from None
