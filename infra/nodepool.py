"""
Read a node-pool file of the usual kind and say, key by key, what becomes of it here.

``python -m infra.nodepool FILE`` prints the configuration on stdout, ready for the key
``config`` of the context, and one line a key on stderr: taken, translated, or refused with the
reason. Exit status: 0 nothing was refused, 1 something was, 2 the file can't be read.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import yaml

from infra.config import ConfigError, load_mapping, read_file
from reprieve.domain.catalogue import excluded

INSTANCE_TYPE = re.compile(r"[a-z][a-z0-9-]*\.[a-z0-9-]+")
FEW_TYPES = 5

# Wrappers that mean nothing by themselves.
CONTAINERS = frozenset({"spec", "nodepool", "spot", "spotconfig", "spotoptions", "ondemandoptions"})


class Verdict(StrEnum):
    """What became of a key."""

    TAKEN = "taken"
    TRANSLATED = "translated"
    REFUSED = "refused"


@dataclass(frozen=True, slots=True)
class Line:
    """One key's fate: where it stood, and what it becomes or why it doesn't."""

    key: str
    verdict: Verdict
    says: str

    def __str__(self) -> str:
        """Return the line as printed."""
        return f"{self.verdict:<10} {self.key}: {self.says}"


@dataclass(slots=True)
class Draft:
    """The pool being read, and what belongs to the whole configuration."""

    name: str = "gpu"
    pool: dict[str, Any] = field(default_factory=dict)
    rest: dict[str, Any] = field(default_factory=dict)
    usd_per_host: float | None = None
    more_pools: dict[str, dict[str, Any]] = field(default_factory=dict)
    lines: list[Line] = field(default_factory=list)

    @property
    def max_hosts(self) -> int:
        """How many hosts the pool may have; ours by default."""
        return int(self.pool.get("max_hosts", 2))


@dataclass(frozen=True, slots=True)
class Translation:
    """The configuration and the fate of every key."""

    config: dict[str, Any]
    lines: tuple[Line, ...]

    @property
    def refused(self) -> tuple[Line, ...]:
        """The keys that came to nothing."""
        return tuple(line for line in self.lines if line.verdict is Verdict.REFUSED)


Answer = tuple[Verdict, str]
Reader = Callable[[Draft, Any], Answer]


def translate(document: Mapping[str, Any]) -> Translation:
    """Return our configuration for *document*. Raises ``ConfigError`` if it isn't valid."""
    draft = Draft()
    _read(draft, document, path="")
    if draft.usd_per_host is not None:
        draft.pool.setdefault("max_usd_per_hour", round(draft.usd_per_host * draft.max_hosts, 2))
    pools = dict(draft.more_pools)
    if draft.pool or not pools:
        pools[draft.name] = draft.pool
    config = {"pools": pools, **draft.rest}
    load_mapping(config)
    return Translation(config, tuple(draft.lines))


def _read(draft: Draft, document: Mapping[str, Any], *, path: str) -> None:
    for key, value in document.items():
        where = f"{path}{key}"
        word = _word(str(key))
        if word in CONTAINERS and isinstance(value, Mapping):
            _read(draft, value, path=f"{where}.")
            continue
        reader = READERS.get(word, _unknown)
        try:
            verdict, says = reader(draft, value)
        except (TypeError, ValueError):
            verdict, says = Verdict.REFUSED, f"{value!r:.60} isn't a value that this key can have"
        draft.lines.append(Line(where, verdict, says))


def _taken(says: str) -> Answer:
    return Verdict.TAKEN, says


def _translated(says: str) -> Answer:
    return Verdict.TRANSLATED, says


def _refused(says: str) -> Answer:
    return Verdict.REFUSED, says


def _word(key: str) -> str:
    """Return ``onDemandBaseCapacity`` and ``on-demand-base-capacity`` as one word."""
    return re.sub(r"[^a-z0-9]", "", key.lower())


def _unknown(_draft: Draft, _value: Any) -> Answer:
    return _refused("nothing here does this")


def _kind(_draft: Draft, value: Any) -> Answer:
    if _word(str(value)) != "nodepool":
        return _refused(f"{value} is another kind of file")
    return _taken("a node pool is a pool")


def _version(_draft: Draft, _value: Any) -> Answer:
    return _taken("read for its keys, whatever the version")


def _metadata(draft: Draft, value: Any) -> Answer:
    return _name(draft, dict(value).get("name", draft.name))


def _name(draft: Draft, value: Any) -> Answer:
    name = re.sub(r"[^a-z0-9]+", "-", str(value).lower()).strip("-")[:20].rstrip("-")
    if not name or not name[0].isalpha():
        return _refused(f"{value!r} makes no name: a letter, then letters, digits, dashes")
    draft.name = name
    return (Verdict.TAKEN if name == value else Verdict.TRANSLATED), f"pools.{name}"


def _regions(_draft: Draft, value: Any) -> Answer:
    regions = [value] if isinstance(value, str) else [str(region) for region in value]
    commands = "; ".join(f"AWS_REGION={region} cdk deploy" for region in regions)
    return _translated(f"one stack a region, and a job stays in its own: {commands}")


def _max_price(draft: Draft, value: Any) -> Answer:
    price = float(str(value).removeprefix("$"))
    if price <= 0:
        raise ValueError(value)
    draft.usd_per_host = price
    return _translated(
        "max_usd_per_hour of the pool, this times max_hosts. EC2 gets no maximum price: below "
        "the market it means more interruptions, and Spot never costs more than on-demand",
    )


def _types(draft: Draft, value: Any) -> Answer:
    asked = [value] if isinstance(value, str) else [str(entry) for entry in value]
    types = list(dict.fromkeys(entry.removeprefix("ml.") for entry in asked))
    barred = {entry: why for entry in types if (why := excluded(entry))}
    wrong = [entry for entry in types if not INSTANCE_TYPE.fullmatch(entry)]
    kept = [entry for entry in types if entry not in (*barred, *wrong)]
    if not kept:
        return _refused(f"no usable instance type among {', '.join(asked) or 'none'}")
    draft.pool["types"] = [*draft.pool.get("types", []), *kept]
    notes = []
    if wrong:
        notes.append(f"not an instance type, left out: {', '.join(wrong)}")
    notes += [f"{entry} left out: {why}" for entry, why in barred.items()]
    if any(entry.startswith("ml.") for entry in asked):
        notes.append("ml.* are SageMaker's names for the same machines")
    if len(kept) < FEW_TYPES:
        notes.append(f"only {len(kept)} types: each one more is a Spot pool more in every zone")
    changed = wrong or barred or kept != asked
    return (Verdict.TRANSLATED if changed else Verdict.TAKEN), "; ".join(["types", *notes])


def _strategy(draft: Draft, value: Any) -> Answer:
    match _word(str(value)):
        case "pricecapacityoptimized":
            return _taken("what every fleet request here asks for")
        case "capacityoptimized" | "capacityoptimizedprioritized":
            draft.pool["strategy"] = "capacity-optimized"
            return _taken("strategy: deepest pools first, whatever they cost")
        case "lowestprice":
            return _translated(
                "price-capacity-optimized: the cheapest pools are the ones that are taken back "
                "most, and AWS advises against asking for them alone",
            )
        case "diversified" | "balanced":
            return _translated(
                "price-capacity-optimized: deepest pools first, then the cheapest of them",
            )
        case _:
            return _refused(f"{value!r} is no allocation strategy of EC2 Fleet")


def _spot_pools(_draft: Draft, _value: Any) -> Answer:
    return _refused(
        "only lowest-price counts pools; here every type in every zone is offered, and pools "
        "that just failed or interrupted are left out for minutes",
    )


def _on_demand_base(draft: Draft, value: Any) -> Answer:
    draft.pool["on_demand_base"] = int(value)
    if int(value):
        tiers = draft.pool.setdefault("tiers", ["spot", "on-demand"])
        if "on-demand" not in tiers:
            tiers.append("on-demand")
    return _taken("on_demand_base")


def _on_demand_share(draft: Draft, value: Any) -> Answer:
    match int(value):
        case 0:
            return _taken("Spot above the base, which is how tiers are tried")
        case 100:
            draft.pool["tiers"] = ["on-demand"]
            return _translated("tiers: [on-demand]")
        case share:
            return _refused(
                f"{share} % would pay for on-demand while Spot is to be had; use on_demand_base "
                "for hosts that must not be interrupted",
            )


def _tiers(draft: Draft, value: Any) -> Answer:
    known = {"spot": "spot", "spotwider": "spot-wider", "ondemand": "on-demand"}
    words = [value] if isinstance(value, str) else list(value)
    tiers = [known.get(_word(str(word)), "") for word in words]
    if not tiers or "" in tiers:
        return _refused(f"tiers are spot and on-demand, in the order to try, not {value}")
    draft.pool["tiers"] = list(dict.fromkeys(tiers))
    return _taken("tiers, tried in this order")


def _max_hosts(draft: Draft, value: Any) -> Answer:
    draft.pool["max_hosts"] = int(value)
    return _taken("max_hosts")


def _min_hosts(draft: Draft, value: Any) -> Answer:
    if not int(value):
        return _taken("an idle pool has no host here either")
    draft.pool["buffer"] = int(value)
    return _translated("buffer: so many idle hosts, which you pay for, beside the busy")


def _desired(_draft: Draft, _value: Any) -> Answer:
    return _refused("hosts follow the jobs: submit, and one is launched")


def _budget(draft: Draft, value: Any) -> Answer:
    draft.pool["max_usd_per_hour"] = float(value)
    return _taken("max_usd_per_hour")


def _rebalance(_draft: Draft, value: Any) -> Answer:
    if not value:
        return _taken("nobody is moved on advice")
    return _translated(
        "on advice a job is checkpointed and no new one goes there; hosts are not replaced, "
        "because about two of three recommendations come to nothing (spares_per_hour buys some)",
    )


def _interruption(_draft: Draft, value: Any) -> Answer:
    if _word(str(value)) == "terminate":
        return _taken("a fleet of type instant knows nothing else")
    return _refused(
        f"{value} needs a persistent request, which is bound to one machine and one zone; here "
        "the checkpoint moves instead",
    )


def _image(draft: Draft, value: Any) -> Answer:
    key = "id" if str(value).startswith("ami-") else "parameter"
    draft.pool.setdefault("image", {})[key] = str(value).removeprefix("resolve:ssm:")
    return _taken(f"image.{key}: it needs Python >= 3.11, systemd and the SSM agent")


def _volume(draft: Draft, value: Any) -> Answer:
    draft.pool["volume_gb"] = int(str(value).removesuffix("Gi").removesuffix("GB"))
    return _taken("volume_gb")


def _vpc(draft: Draft, value: Any) -> Answer:
    draft.rest.setdefault("network", {})["vpc_id"] = str(value)
    return _taken("network.vpc_id")


def _subnets(draft: Draft, value: Any) -> Answer:
    if not isinstance(value, Mapping):
        return _refused("give network.subnets as zone: subnet, one a zone, with vpc_id")
    draft.rest.setdefault("network", {})["subnets"] = dict(value)
    return _taken("network.subnets")


def _zones(draft: Draft, value: Any) -> Answer:
    zones = [value] if isinstance(value, str) else list(value)
    draft.rest.setdefault("network", {})["zones"] = len(zones)
    return _translated(
        f"network.zones: {len(zones)}, the region's first; to choose, bring subnets of your own",
    )


def _tags(draft: Draft, value: Any) -> Answer:
    draft.rest["tags"] = {str(key): str(text) for key, text in dict(value).items()}
    return _taken("tags of the stack and its hosts")


def _kubernetes(_draft: Draft, _value: Any) -> Answer:
    return _refused("there is no Kubernetes here: a pool's name is what jobs ask for")


def _ssh(_draft: Draft, _value: Any) -> Answer:
    return _refused("hosts accept no connection; commands reach them through SSM")


def _user_data(_draft: Draft, _value: Any) -> Answer:
    return _refused(
        "the template's own installs the agent; put what jobs need into the image or the "
        "job's setup command",
    )


def _pools(draft: Draft, value: Any) -> Answer:
    """Read a list of pools with names, or a list of types in zones."""
    entries = [dict(entry) if isinstance(entry, Mapping) else {"type": entry} for entry in value]
    named = [entry for entry in entries if "name" in entry]
    types = [entry[key] for entry in entries for key in ("type", "instanceType") if key in entry]
    if len(named) == len(entries) and entries:
        for number, entry in enumerate(named):
            one = Draft()
            _read(one, entry, path=f"pools[{number}].")
            if one.usd_per_host is not None:
                cap = round(one.usd_per_host * one.max_hosts, 2)
                one.pool.setdefault("max_usd_per_hour", cap)
            draft.more_pools[one.name] = one.pool
            draft.lines += one.lines
        return _taken(f"pools: {', '.join(draft.more_pools)}")
    if types and len(types) == len(entries):
        verdict, says = _types(draft, types)
        if verdict is Verdict.REFUSED:
            return verdict, says
        return _translated(
            f"{says}; each type is offered in every zone, so pools by zone and weights fall away",
        )
    return _refused("give each entry a name and its types, or list types alone")


REQUIREMENTS: dict[str, Reader] = {
    "nodekubernetesioinstancetype": _types,
    "karpentershcapacitytype": _tiers,
    "topologykubernetesiozone": _zones,
    "topologykubernetesioregion": _regions,
}


def _requirements(draft: Draft, value: Any) -> Answer:
    """Read Karpenter's list of {key, operator, values}."""
    for entry in value:
        key = str(entry["key"])
        reader = REQUIREMENTS.get(_word(key), _unknown)
        if entry.get("operator", "In") != "In":
            answer = _refused(f"{entry['operator']}: name what is wanted, with In")
        else:
            answer = reader(draft, entry.get("values", []))
        draft.lines.append(Line(f"requirements[{key}]", *answer))
    return _taken("read one by one")


READERS: dict[str, Reader] = {
    "apiversion": _version,
    "kind": _kind,
    "metadata": _metadata,
    "name": _name,
    "region": _regions,
    "regions": _regions,
    "maxprice": _max_price,
    "spotmaxprice": _max_price,
    "maxpriceperhour": _max_price,
    "instancetype": _types,
    "instancetypes": _types,
    "types": _types,
    "diversificationstrategy": _strategy,
    "allocationstrategy": _strategy,
    "spotallocationstrategy": _strategy,
    "spotinstancepools": _spot_pools,
    "instancepoolstousecount": _spot_pools,
    "ondemandbasecapacity": _on_demand_base,
    "ondemandbase": _on_demand_base,
    "ondemandpercentageabovebasecapacity": _on_demand_share,
    "capacitytype": _tiers,
    "capacitytypes": _tiers,
    "tiers": _tiers,
    "maxsize": _max_hosts,
    "maxhosts": _max_hosts,
    "maxnodes": _max_hosts,
    "minsize": _min_hosts,
    "minnodes": _min_hosts,
    "buffer": _min_hosts,
    "desiredcapacity": _desired,
    "targetcapacity": _desired,
    "maxusdperhour": _budget,
    "budgetperhour": _budget,
    "capacityrebalance": _rebalance,
    "capacityrebalancing": _rebalance,
    "interruptionbehavior": _interruption,
    "instanceinterruptionbehavior": _interruption,
    "ami": _image,
    "amiid": _image,
    "imageid": _image,
    "volumesize": _volume,
    "vpcid": _vpc,
    "subnets": _subnets,
    "zones": _zones,
    "availabilityzones": _zones,
    "tags": _tags,
    "labels": _kubernetes,
    "taints": _kubernetes,
    "nodeclassref": _kubernetes,
    "keyname": _ssh,
    "sshkey": _ssh,
    "userdata": _user_data,
    "pools": _pools,
    "requirements": _requirements,
}


def main(arguments: list[str] | None = None) -> int:
    """Translate one file."""
    parser = argparse.ArgumentParser(
        prog="python -m infra.nodepool",
        description="Translate a node-pool file into Reprieve's configuration, key by key.",
    )
    parser.add_argument("file", type=Path)
    path: Path = parser.parse_args(arguments).file
    try:
        translation = translate(read_file(path))
    except ConfigError as error:
        sys.stderr.write(f"reprieve: {error}\n")
        return 2
    for line in translation.lines:
        sys.stderr.write(f"{line}\n")
    yaml.safe_dump(translation.config, sys.stdout, sort_keys=False)
    return 1 if translation.refused else 0


if __name__ == "__main__":
    raise SystemExit(main())
