"""Compare what was expected of a scenario with what is seen."""

from __future__ import annotations

import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from reprieve.domain.checkpoint import FileEntry, Manifest, log_key, step_of
from reprieve.domain.errors import MalformedError
from reprieve.domain.job import Attempt, Event
from reprieve.metrics import NAMESPACE
from reprieve_cli.drill.counting import count_calls, count_distinct
from reprieve_cli.drill.match import Match, shown
from reprieve_cli.drill.reference import NoReferenceError, References
from reprieve_cli.drill.scenario import (
    JobExpected,
    JobPlan,
    Moment,
    Scenario,
    Span,
)
from reprieve_cli.drill.stage import JobSeen, View
from reprieve_cli.local.world.pump import embedded_metrics

_LOG_GROUP_PREFIX = "/aws/lambda/"


@dataclass(frozen=True, slots=True)
class Finding:
    """One expectation: *what* it is about, and whether it holds."""

    what: str
    expected: str
    seen: str
    holds: bool
    job: str = ""
    """The name of the job that it is about, if it is about one."""


@dataclass(frozen=True, slots=True)
class Judge:
    """Looks at everything anew each time it is asked."""

    scenario: Scenario
    view: View
    ids: dict[str, str]
    warnings: dict[str, list[str]]
    references: References

    def findings(self) -> list[Finding]:
        """Return one finding for each expectation, in the order of the file."""
        expect = self.scenario.expect
        found: list[Finding] = []
        for name, wanted in expect.jobs.items():
            if name not in self.ids:
                found.append(Finding(f"job {name}", "a job", "never submitted", holds=False))
                continue
            seen = self.view.job(self.ids[name])
            found += [replace(one, job=name) for one in _Job(self, name, seen).findings(wanted)]
        logs = {name: self.view.calls_of(name) for name in {c.call.service for c in expect.calls}}
        for call in expect.calls:
            calls = logs[call.call.service]
            what, count = f"calls {call.call}", count_calls(call.call, calls)
            if call.distinct is not None:
                what = f"different {call.distinct} in {what}"
                count = count_distinct(call.distinct, call.call, calls)
            found.append(_compare(what, call.count, count))
        found += self._figures("instances", expect.instances, self._instances)
        found += self._figures("queues", expect.queues, self._queues)
        found += self._figures("metrics", expect.metrics, self._metrics)
        if expect.seconds is not None:
            took = (datetime.now(UTC) - self.view.began).total_seconds()
            seconds = round(took / self.scenario.clock_scale, 1)
            found.append(_compare("seconds of the scaled clock", expect.seconds, seconds))
        return found

    def plan(self, name: str) -> JobPlan:
        """Return the job of that name."""
        return next(job for job in self.scenario.jobs if job.name == name)

    def _figures(self, what: str, wanted: dict[str, Match], look: Any) -> list[Finding]:
        if not wanted:
            return []
        seen = look()
        return [_compare(f"{what} {name}", rule, seen[name]) for name, rule in wanted.items()]

    def _instances(self) -> dict[str, int]:
        launched = self.view.hosts()
        found = Counter({"launched": len(launched), "alive": len(self.view.alive())})
        for host in launched:
            found.update((f"zone {host.zone}", f"market {host.market}", f"type {host.type}"))
        return found

    def _queues(self) -> dict[str, int]:
        """Count what waits or is being worked on; dead letters are all queues but the others."""
        stage = self.view.stage
        stack = stage.cloud.stack
        kinds = {
            stack.outputs["IntakeQueueUrl"]: "intake",
            stack.outputs["ReportsQueueUrl"]: "reports",
            stack.orders_url: "orders",
            **{pool.work_queue_url: "work" for pool in stack.pools.values()},
        }
        names = {url.rpartition("/")[2]: kind for url, kind in kinds.items()}
        depths = dict.fromkeys([*kinds.values(), "dead_letters"], 0)
        pages = stage.cloudformation.get_paginator("list_stack_resources")
        for page in pages.paginate(StackName=stack.name):
            for resource in page["StackResourceSummaries"]:
                if resource["ResourceType"] == "AWS::SQS::Queue":
                    url = resource["PhysicalResourceId"]
                    kind = names.get(url.rpartition("/")[2], "dead_letters")
                    depths[kind] += self._depth(url)
        return depths

    def _depth(self, url: str) -> int:
        attributes = self.view.stage.sqs.get_queue_attributes(
            QueueUrl=url,
            AttributeNames=["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesNotVisible"],
        )["Attributes"]
        return sum(int(value) for value in attributes.values())

    def _metrics(self) -> dict[str, float]:
        """Sum up what the functions' log lines embed, as CloudWatch does."""
        logs, since = self.view.stage.logs, int(self.view.began.timestamp() * 1000)
        sums: dict[str, float] = dict.fromkeys(self.scenario.expect.metrics, 0.0)
        for page in logs.get_paginator("describe_log_groups").paginate():
            for group in page["logGroups"]:
                pages = logs.get_paginator("filter_log_events")
                for events in pages.paginate(logGroupName=group["logGroupName"], startTime=since):
                    for event in events["events"]:
                        for namespace, datum in embedded_metrics(event["message"]):
                            if namespace == NAMESPACE and datum["MetricName"] in sums:
                                sums[datum["MetricName"]] += sum(datum["Values"])
        return sums


@dataclass(frozen=True, slots=True)
class _Job:
    """Compares one job."""

    judge: Judge
    name: str
    seen: JobSeen

    def findings(self, wanted: JobExpected) -> list[Finding]:
        found = [
            _compare(self._what(field), rule, _field(self.seen, field))
            for field, rule in wanted.fields.items()
        ]
        counters = self.seen.job.counters
        found += [
            _compare(self._what(f"counters.{field}"), rule, getattr(counters, field))
            for field, rule in wanted.counters.items()
        ]
        found += self._attempts(wanted.attempts)
        found += self._events(wanted)
        if wanted.warned is not None:
            said = "; ".join(self.judge.warnings[self.name])
            found.append(_compare(self._what("warned at submit"), wanted.warned, said))
        if wanted.resumes_proven:
            found.append(self._resumes())
        if wanted.step_log:
            found.append(self._step_log(wanted.step_log))
        if wanted.identical:
            found.append(self._identical(wanted.identical.file, same=wanted.identical.same))
        return found

    def _what(self, field: str) -> str:
        return f"job {self.name}: {field}"

    def _attempts(self, wanted: Sequence[dict[str, Match]]) -> Iterator[Finding]:
        if not wanted:
            return
        rows = self.seen.attempts
        yield Finding(
            self._what("attempts"), str(len(wanted)), str(len(rows)), len(rows) == len(wanted)
        )
        for row, rules in zip(rows, wanted, strict=False):
            for field, rule in rules.items():
                seen = self._of_attempt(row, field)
                yield _compare(self._what(f"attempt {row.n} {field}"), rule, seen)

    def _of_attempt(self, row: Attempt, field: str) -> Any:
        match field:
            case "first_channel":
                return self._first_channel(row)
            case "output":
                log = self.judge.view.stage.cloud.objects.read(log_key(row.job, row.n))
                return (log or b"").decode(errors="replace")
            case _:
                return getattr(row, field)

    def _first_channel(self, row: Attempt) -> str | None:
        hosts = self.judge.view.stage.cloud.hosts.read([row.instance_id] if row.instance_id else [])
        notices = [host.notice for host in hosts.values() if host.notice]
        return notices[0].channel.value if notices else None

    def _events(self, wanted: JobExpected) -> Iterator[Finding]:
        events = self.seen.events
        if wanted.events:
            rest = iter(events)
            yield Finding(
                self._what("events in this order"),
                ", ".join(wanted.events),
                ", ".join(event.kind for event in events),
                all(any(is_event(event, word) for event in rest) for word in wanted.events),
            )
        for word, rule in wanted.event_counts.items():
            count = sum(is_event(event, word) for event in events)
            yield _compare(self._what(f"events {word}"), rule, count)
        for span in wanted.times:
            yield self._span(span)
        for word in wanted.never:
            times = sum(is_event(event, word) for event in events)
            yield Finding(self._what(f"event {word}"), "never", f"{times} times", not times)

    def _span(self, span: Span) -> Finding:
        start = self._first(span.start, after=None)
        end = self._first(span.end, after=start) if start else None
        if start is None:
            seen: Any = f"no {span.start}"
        elif end is None:
            seen = f"no {span.end} after {span.start}"
        else:
            seen = round((end - start).total_seconds() / self.judge.scenario.clock_scale, 1)
        return Finding(
            self._what(f"seconds from {span.start} to {span.end}"),
            str(span.seconds),
            str(seen),
            end is not None and span.seconds.fits(seen),
        )

    def _first(self, moment: Moment, *, after: datetime | None) -> datetime | None:
        """Return the first such moment that isn't before *after*."""
        if moment.event is not None:
            word = moment.event
            times = [event.at for event in self.seen.events if is_event(event, word)]
        else:
            entries = self.judge.view.world()
            times = [datetime.fromisoformat(e["at"]) for e in entries if e["kind"] == moment.world]
        return min((at for at in times if after is None or at >= after), default=None)

    # ------------------------------------------------------------------ checkpoints
    def _manifests(self) -> dict[tuple[int, int], Manifest]:
        """Return the manifests that can be read, by attempt and step."""
        objects = self.judge.view.stage.cloud.objects
        found = {}
        for key in objects.sizes(f"jobs/{self.seen.job.id}/manifests/"):
            place, body = step_of(key), objects.read(key)
            if place and body:
                try:
                    found[place] = Manifest.from_json(body, key=key)
                except MalformedError:
                    continue
        return found

    def _bytes(self, manifest: Manifest, path: str) -> bytes | None:
        """Return a file of a checkpoint if its bytes are the ones that the manifest proves."""
        files = [file for file in manifest.files if file.path == path]
        return self._proven(files[0]) if files else None

    def _proven(self, file: FileEntry) -> bytes | None:
        body = self.judge.view.stage.cloud.objects.read(file.key)
        if body is None or len(body) != file.size:
            return None
        return body if hashlib.sha256(body).hexdigest() == file.sha256 else None

    def _resumes(self) -> Finding:
        manifests = self._manifests()
        later = [row for row in self.seen.attempts if row.n > 1]
        wrong = [text for row in later if (text := self._unproven(row, manifests))]
        steps = ", ".join(f"attempt {row.n} from step {row.restored_step}" for row in later)
        return Finding(
            self._what("resumes proven"),
            "each later attempt begins at a step above 0 that a whole checkpoint proves",
            "; ".join(wrong) or steps or "there is no later attempt",
            bool(later) and not wrong,
        )

    def _unproven(self, row: Attempt, manifests: dict[tuple[int, int], Manifest]) -> str | None:
        if not row.restored_step:
            return f"attempt {row.n} begins at {shown(row.restored_step)}"
        places = [p for p in manifests if p[0] < row.n and p[1] == row.restored_step]
        if not places:
            return f"attempt {row.n} begins at step {row.restored_step}, which has no manifest"
        broken = [f.path for f in manifests[max(places)].files if self._proven(f) is None]
        return f"attempt {row.n}: {', '.join(broken)} missing or damaged" if broken else None

    def _last(self) -> Manifest | None:
        manifests, pointer = self._manifests(), self.seen.job.checkpoint
        return manifests.get(step_of(pointer.manifest) or (0, 0)) if pointer else None

    def _step_log(self, path: str) -> Finding:
        last = self._last()
        body = self._bytes(last, path) if last else None
        lines = [json.loads(line) for line in (body or b"").splitlines()]
        made = [(int(line["attempt"]), int(line["step"])) for line in lines]
        wrong = _gap(made) or self._wrong_start(made)
        total = last.step if last else None
        return Finding(
            self._what("step log"),
            "every step once, in order, each attempt beginning after its checkpoint",
            wrong or f"{len(made)} steps of {total}",
            bool(made) and not wrong and made[-1][1] == total,
        )

    def _wrong_start(self, made: list[tuple[int, int]]) -> str | None:
        for row in self.seen.attempts:
            own = [step for attempt, step in made if attempt == row.n]
            if own and own[0] != (row.restored_step or 0) + 1:
                return (
                    f"attempt {row.n} restored step {shown(row.restored_step)} "
                    f"and went on with step {own[0]}"
                )
        return None

    def _identical(self, path: str, *, same: bool) -> Finding:
        last = self._last()
        body = self._bytes(last, path) if last else None
        mine = hashlib.sha256(body).hexdigest() if body is not None else None
        try:
            other = self.judge.references.digest(self.judge.plan(self.name), path)
        except NoReferenceError as error:
            return Finding(
                self._what(f"{path} identical"), "a run to compare", str(error), holds=False
            )
        return Finding(
            self._what(f"{path} {'identical' if same else 'different'}"),
            f"{'' if same else 'not '}sha256 {other[:16]}, as without interruption",
            f"sha256 {mine[:16]}" if mine else "no such file in the last checkpoint",
            mine is not None and (mine == other) is same,
        )


def is_event(event: Event, word: str) -> bool:
    """Tell whether *word* means *event*: its kind or, in several words, a part of its text."""
    return word in event.text if " " in word else word == event.kind


def _compare(what: str, rule: Match, seen: Any) -> Finding:
    return Finding(what, str(rule), shown(seen), rule.fits(seen))


def _field(seen: JobSeen, name: str) -> Any:
    if name == "checkpoint_step":
        return seen.job.checkpoint.step if seen.job.checkpoint else None
    return getattr(seen.job, name)


def _gap(made: list[tuple[int, int]]) -> str | None:
    for place, (attempt, step) in enumerate(made, start=1):
        if step != place:
            return f"attempt {attempt} went on with step {step} instead of {place}"
    return None
