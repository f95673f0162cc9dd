"""EC2's calls that the world answers by itself: fleets, instances, spot and what is on offer."""

from __future__ import annotations

import base64
import datetime as dt
from typing import TYPE_CHECKING, Any, TypeVar

from botocore.exceptions import ClientError

from reprieve_cli.local.world.catalogue import instance_types, offered_in, zones_of
from reprieve_cli.local.world.errors import AwsError
from reprieve_cli.local.world.fleet import Fleets
from reprieve_cli.local.world.instances import Instance, Template, like, matches, not_found
from reprieve_cli.local.world.market import Market
from reprieve_cli.local.world.shapes import zone_id
from reprieve_cli.local.world.timeline import now

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from reprieve_cli.local.world.hosts import Hosts
    from reprieve_cli.local.world.upstream import Upstream

    Parameters = dict[str, Any]
    Answer = dict[str, Any]

T = TypeVar("T")

_LEAST_RESULTS = 5
_MOST_RESULTS = 1000
_PRODUCT = "Linux/UNIX"


class Account:
    """Launch templates and subnets: CloudFormation made them, ministack keeps them."""

    def __init__(self, upstream: Upstream) -> None:
        self._upstream = upstream
        self._zones: dict[str, str] = {}

    async def template(self, specification: dict[str, Any]) -> Template:
        wanted = specification.get("Version", "$Default")
        key = "LaunchTemplateId" if "LaunchTemplateId" in specification else "LaunchTemplateName"
        try:
            answer = await self._upstream.call(
                "ec2",
                "describe_launch_template_versions",
                **{key: specification.get(key, ""), "Versions": [wanted]},
            )
        except ClientError as error:
            described = error.response["Error"]
            raise AwsError(described["Code"], described["Message"]) from error
        if not answer["LaunchTemplateVersions"]:
            raise AwsError(
                "InvalidLaunchTemplateId.VersionNotFound",
                f"Could not find launch template version {wanted}",
            )
        version = answer["LaunchTemplateVersions"][0]
        return Template(
            version["LaunchTemplateId"],
            str(version["VersionNumber"]),
            version["LaunchTemplateData"],
        )

    async def zone_of(self, subnet_id: str) -> str | None:
        if subnet_id not in self._zones:
            answer = await self._upstream.call("ec2", "describe_subnets")
            self._zones = {one["SubnetId"]: one["AvailabilityZone"] for one in answer["Subnets"]}
        return self._zones.get(subnet_id)


class Ec2:
    """One method per call; ``owns`` tells which calls are ours."""

    def __init__(self, *, hosts: Hosts, market: Market, fleets: Fleets) -> None:
        self._hosts = hosts
        self._market = market
        self._fleets = fleets
        self._calls: dict[str, Callable[[Parameters], Awaitable[Answer]]] = {
            "CreateFleet": fleets.create,
            "DescribeInstances": self._describe_instances,
            "TerminateInstances": self._terminate_instances,
            "CreateTags": self._create_tags,
            "DescribeSpotPriceHistory": self._describe_spot_price_history,
            "DescribeSpotInstanceRequests": self._describe_spot_instance_requests,
            "GetSpotPlacementScores": self._get_spot_placement_scores,
            "DescribeInstanceTypes": self._describe_instance_types,
            "DescribeInstanceTypeOfferings": self._describe_instance_type_offerings,
        }

    def owns(self, action: str, parameters: Parameters) -> bool:
        """Tell whether the world answers *action*; tags of anything but hosts are ministack's."""
        if action == "CreateTags":
            return all(name.startswith("i-") for name in parameters.get("Resources", []))
        return action in self._calls

    async def answer(self, action: str, parameters: Parameters) -> Answer:
        """Answer *action*; raise ``AwsError`` as EC2 would."""
        return await self._calls[action](parameters)

    # ------------------------------------------------------------------ instances
    async def _describe_instances(self, parameters: Parameters) -> Answer:
        ids = parameters.get("InstanceIds")
        if ids and ("MaxResults" in parameters or "NextToken" in parameters):
            raise AwsError(
                "InvalidParameterCombination",
                "The parameter instancesSet cannot be used with the parameter maxResults",
            )
        visible = {
            one.instance_id: one
            for one in self._hosts.all()
            if self._visible(one) and self._hosts.remembered(one)
        }
        missing = [found for found in ids or [] if found not in visible]
        if missing:  # what is not visible yet does not exist yet
            raise not_found(missing)
        chosen = [
            one
            for one in visible.values()
            if (not ids or one.instance_id in ids) and matches(one, parameters.get("Filters", []))
        ]
        page, token = _page(chosen, parameters)
        return {"Reservations": [_reservation(one) for one in page], "NextToken": token}

    def _visible(self, instance: Instance) -> bool:
        lag = dt.timedelta(seconds=self._market.settings.visible_after_seconds)
        return now() >= instance.launched_at + lag

    async def _terminate_instances(self, parameters: Parameters) -> Answer:
        return {"TerminatingInstances": await self._hosts.terminate(parameters["InstanceIds"])}

    async def _create_tags(self, parameters: Parameters) -> Answer:
        for instance in self._hosts.get_all(parameters["Resources"]):
            instance.tags |= {tag["Key"]: tag.get("Value", "") for tag in parameters["Tags"]}
        return {}

    # ------------------------------------------------------------------ spot
    async def _describe_spot_instance_requests(self, parameters: Parameters) -> Answer:
        wanted = set(parameters.get("SpotInstanceRequestIds", []))
        spot = [one for one in self._hosts.all() if one.is_spot and self._visible(one)]
        missing = wanted - {one.spot_request_id for one in spot}
        if missing:
            raise AwsError(
                "InvalidSpotInstanceRequestID.NotFound",
                f"The spot instance request ID '{min(missing)}' does not exist",
            )
        filters = parameters.get("Filters", [])
        chosen = [
            one
            for one in spot
            if (not wanted or one.spot_request_id in wanted) and _request_matches(one, filters)
        ]
        page, token = _page(chosen, parameters)
        return {"SpotInstanceRequests": [_request(one) for one in page], "NextToken": token}

    async def _describe_spot_price_history(self, parameters: Parameters) -> Answer:
        types = parameters.get("InstanceTypes")
        zone = parameters.get("AvailabilityZone")
        products = parameters.get("ProductDescriptions") or [_PRODUCT]
        chosen = [
            price
            for price in sorted(self._market.prices, key=lambda price: price.at, reverse=True)
            if (not types or price.type in types)
            and (not zone or price.zone == zone)
            and any(product.startswith(_PRODUCT) for product in products)
        ]
        page, token = _page(chosen, parameters)
        return {
            "SpotPriceHistory": [
                {
                    "AvailabilityZone": price.zone,
                    "InstanceType": price.type,
                    "ProductDescription": _PRODUCT,
                    "SpotPrice": f"{price.usd_per_hour:.6f}",
                    "Timestamp": price.at,
                }
                for price in page
            ],
            "NextToken": token,
        }

    async def _get_spot_placement_scores(self, parameters: Parameters) -> Answer:
        types = set(parameters.get("InstanceTypes", []))
        wanted = parameters["TargetCapacity"]
        region = self._market.region
        depths = dict.fromkeys(zones_of(region), 0)
        for pool in self._market.spot.values():
            if pool.type in types and pool.zone in depths:
                depths[pool.zone] += pool.depth
        if parameters.get("SingleAvailabilityZone"):
            scores = [
                {
                    "Region": region,
                    "AvailabilityZoneId": zone_id(zone),
                    "Score": _score(depth, wanted),
                }
                for zone, depth in depths.items()
            ]
        else:
            scores = [{"Region": region, "Score": _score(sum(depths.values()), wanted)}]
        return {"SpotPlacementScores": sorted(scores, key=lambda score: -score["Score"])}

    # ------------------------------------------------------------------ what is on offer
    async def _describe_instance_types(self, parameters: Parameters) -> Answer:
        known = instance_types()
        wanted = parameters.get("InstanceTypes") or list(known)
        missing = [name for name in wanted if name not in known]
        if missing:
            raise AwsError(
                "InvalidInstanceType",
                f"The following supplied instance types do not exist: [{', '.join(missing)}]",
            )
        patterns = _patterns(parameters, only="instance-type")
        chosen = [known[name] for name in wanted if _like_any(name, patterns)]
        page, token = _page(chosen, parameters)
        return {"InstanceTypes": [kind.describe() for kind in page], "NextToken": token}

    async def _describe_instance_type_offerings(self, parameters: Parameters) -> Answer:
        region = self._market.region
        by_zone = parameters.get("LocationType", "region") == "availability-zone"
        location_type = "availability-zone" if by_zone else "region"
        types = _patterns(parameters, only="instance-type", others=("location",))
        places = _patterns(parameters, only="location", others=("instance-type",))
        offers = [
            {"InstanceType": kind.name, "LocationType": location_type, "Location": place}
            for kind in instance_types().values()
            for place in (offered_in(kind, region) if by_zone else [region])
            if offered_in(kind, region)
        ]
        chosen = [
            offer
            for offer in offers
            if _like_any(offer["InstanceType"], types) and _like_any(offer["Location"], places)
        ]
        page, token = _page(chosen, parameters)
        return {"InstanceTypeOfferings": page, "NextToken": token}


def _score(depth: int, wanted: int) -> int:
    return max(1, min(10, 10 * depth // max(wanted * 10, 1)))


def _reservation(instance: Instance) -> dict[str, Any]:
    return {
        "ReservationId": f"r-{instance.instance_id.removeprefix('i-')}",
        "Instances": [instance.describe()],
    }


def _request(instance: Instance) -> dict[str, Any]:
    state, code = instance.spot_status
    return {
        "SpotInstanceRequestId": instance.spot_request_id,
        "InstanceId": instance.instance_id,
        "State": state,
        "Status": {"Code": code, "Message": code, "UpdateTime": now()},
        "Type": "one-time",
        "CreateTime": instance.launched_at,
        "LaunchedAvailabilityZone": instance.pool.zone,
        "InstanceInterruptionBehavior": "terminate",
    }


def _request_matches(instance: Instance, filters: list[dict[str, Any]]) -> bool:
    state, code = instance.spot_status
    own = {"state": state, "status-code": code}
    for one in filters:
        if one["Name"] in own:
            if not _like_any(own[one["Name"]], one["Values"]):
                return False
        elif not matches(instance, [one]):
            return False
    return True


def _patterns(
    parameters: Parameters, *, only: str, others: tuple[str, ...] = ()
) -> list[str] | None:
    """Return the values of the filter *only*; any filter besides it and *others* is an error."""
    found = None
    for one in parameters.get("Filters", []):
        if one["Name"] == only:
            found = one.get("Values", [])
        elif one["Name"] not in others:
            raise AwsError("InvalidParameterValue", f"The filter '{one['Name']}' is invalid")
    return found


def _like_any(value: str, patterns: list[str] | None) -> bool:
    return patterns is None or any(like(value, pattern) for pattern in patterns)


def _page(items: list[T], parameters: Parameters) -> tuple[list[T], str | None]:
    """Cut one page out of *items*; the token is opaque to callers."""
    start = 0
    if parameters.get("NextToken"):
        try:
            start = int(base64.b64decode(parameters["NextToken"]))
        except ValueError as error:
            raise AwsError("InvalidNextToken", "The token is invalid") from error
    size = parameters.get("MaxResults", _MOST_RESULTS)
    if not _LEAST_RESULTS <= size <= _MOST_RESULTS:
        raise AwsError(
            "InvalidParameterValue",
            f"Value ( {size} ) for parameter maxResults is invalid. "
            f"Expecting a value between {_LEAST_RESULTS} and {_MOST_RESULTS}.",
        )
    end = start + size
    token = base64.b64encode(str(end).encode()).decode() if end < len(items) else None
    return items[start:end], token
