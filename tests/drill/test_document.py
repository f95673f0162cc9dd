"""A scenario that can't be played is refused with one line for each thing that is wrong."""

from pathlib import Path

import pytest

from reprieve_cli.drill.document import ScenarioError, load, parse
from reprieve_cli.drill.match import Match
from reprieve_cli.drill.scenario import (
    EventAction,
    HostAction,
    HostRef,
    JobState,
    MarketChange,
    Passed,
    PoolsAction,
    Scenario,
    Step,
    WaitAction,
)

SCENARIOS = Path(__file__).resolve().parents[1] / "scenarios"
HERE = Path("/somewhere/story.yaml")
LEAST = """
clock_scale: 0.05
jobs:
  - {name: train, command: [python, train.py, --steps, 60]}
expect: {}
"""


def scenario(more: str = "") -> Scenario:
    return parse(LEAST + more, HERE)


def problems(text: str) -> list[str]:
    with pytest.raises(ScenarioError) as refused:
        parse(text, HERE)
    return str(refused.value).splitlines()


@pytest.mark.parametrize("path", sorted(SCENARIOS.glob("*.yaml")), ids=lambda path: path.stem)
def test_every_scenario_of_ours_can_be_read(path: Path) -> None:
    read = load(path)
    assert read.description
    assert read.expect.jobs
    assert all(job.code is None or job.code.is_dir() for job in read.jobs)


def test_the_least_scenario_is_one_job() -> None:
    read = scenario()
    assert read.name == "story"
    assert read.notice_seconds == pytest.approx(6)
    assert read.jobs[0].command == ("python", "train.py", "--steps", "60")
    assert read.pools is None  # everything is for sale


def test_times_are_scaled() -> None:
    assert scenario().real(60) == pytest.approx(3)


def test_a_code_folder_starts_from_the_file(tmp_path: Path) -> None:
    (tmp_path / "code").mkdir()
    (tmp_path / "stories").mkdir()
    text = LEAST.replace("name: train", "name: train, code: ../code")
    read = parse(text, tmp_path / "stories" / "story.yaml")
    assert read.jobs[0].code == (tmp_path / "code").resolve()
    assert problems(text) == [
        "/somewhere/story.yaml:4: jobs[0].code: /somewhere/../code is no folder: mend the path"
    ]


def test_steps_keep_their_order_and_say_when() -> None:
    read = scenario(
        """
steps:
  - when: {job: train, status: RUNNING, step: 20}
    host: {of: train, do: notice, channels: [metadata], in: 60}
  - at: 240
    host: {nth: 2, do: kill, events: false}
  - wait: {seconds: 30}
  - wait: {job: train, event: committed, within: 60}
  - pools: [{zone: us-east-1a, capacity: null}]
"""
    )
    assert read.steps == (
        Step(
            HostAction(HostRef(of="train"), "notice", channels=("metadata",), in_seconds=60),
            when=JobState("train", status=("RUNNING",), step=20),
        ),
        Step(HostAction(HostRef(nth=2), "kill", events=False), at=240),
        Step(WaitAction(Passed(30))),
        Step(WaitAction(JobState("train", event="committed"), within=60)),
        Step(PoolsAction((MarketChange({"capacity": None}, zone="us-east-1a"),))),
    )


def test_an_event_is_passed_on_as_it_stands() -> None:
    read = scenario(
        """
steps:
  - event:
      times: 3
      body: {time: 2026-03-01T10:00:00Z, detail: {instance-id: "${host:train}", odd: [1, null]}}
"""
    )
    assert read.steps[0].action == EventAction(
        {
            "time": "2026-03-01T10:00:00Z",  # text, as events have it
            "detail": {"instance-id": "${host:train}", "odd": [1, None]},
        },
        times=3,
    )


def test_a_reason_is_a_part_of_the_text_and_other_fields_are_the_value() -> None:
    read = scenario().expect.jobs
    assert not read
    text = LEAST.replace(
        "expect: {}", "expect: {jobs: {train: {reason: restarts, steps_lost: {at_most: 9}}}}"
    )
    fields = parse(text, HERE).expect.jobs["train"].fields
    assert fields == {
        "reason": Match((("contains", "restarts"),)),
        "steps_lost": Match((("at_most", 9),)),
    }


def test_every_problem_is_told_with_its_line() -> None:
    assert problems(
        """
clock_scale: 0
jobs:
  - {name: train, command: []}
  - {name: train, command: [python]}
stepz: []
expect:
  jobs:
    train: {status: SUCCEEDED, atempt: 1}
"""
    ) == [
        "/somewhere/story.yaml:2: clock_scale: 0 must be above 0",
        "/somewhere/story.yaml:4: jobs[0].command: must not be empty",
        "/somewhere/story.yaml:5: jobs[1].name: 'train' is the name of another one already",
        "/somewhere/story.yaml:6: scenario: unknown key 'stepz', did you mean 'steps'?",
        "/somewhere/story.yaml:9: expect.jobs.train: unknown key 'atempt', did you mean 'attempt'?",
    ]


@pytest.mark.parametrize(
    ("steps", "said"),
    [
        ("- {at: 1}", "give exactly one of event, fault, host, job, message, object, pools, wait"),
        (
            "- {at: 1, when: {hosts: 1}, wait: {seconds: 1}}",
            "steps[0]: give one of at, when, not both",
        ),
        ("- host: {do: kill}", "steps[0].host: give exactly one of of, nth, zone, every"),
        ("- host: {of: other, do: kill}", "nothing is named 'other', known: train"),
        (
            "- host: {of: train, do: kill, channels: [event]}",
            "'channels' goes with do: notice, rebalance only",
        ),
        (
            "- host: {of: train, do: explode}",
            "'explode' is not one of notice, rebalance, kill, terminate, crash",
        ),
        ("- wait: {seconds: soon}", "steps[0].wait.seconds: must be a number, not soon"),
        ("- wait: {job: train, hosts: 1}", "give exactly one of seconds, job, hosts, call, world"),
        ("- job: {name: train, do: resume}", "'resume' is not one of cancel, requeue, submit"),
        ("- fault: {service: s3, action: PutObject}", "steps[0].fault: 'then' is missing"),
        ("- event: {body: {}, times: 0}", "0 is less than 1"),
        (
            "- fault: {service: sts, action: '*', then: {reply: {}}}",
            "steps[0].fault: 'sts' takes no reply, only an error",
        ),
        (
            "- fault: {service: eventbridge, action: '*', then: {kill: after}}",
            "then takes delay_seconds, drop, duplicate, pass",
        ),
        ("- fault: {service: s3, action: '*', then: {}}", "then takes delay_seconds, drop"),
        (
            "- pools: [{type: g5.xlrge, capacity: 0}]",
            "steps[0].pools[0].type: no instance type is named 'g5.xlrge', did you mean",
        ),
        ("- host: {zone: us-west-2a, do: kill}", "no zone is named 'us-west-2a'"),
        ("- event: {body: {}, body: {}}", "'body' is given twice"),
        ("- event", "steps[0]: must be a mapping"),
    ],
)
def test_a_wrong_step_is_told_at_its_line(steps: str, said: str) -> None:
    (line,) = problems(f"{LEAST}steps:\n  {steps}\n")
    assert line.startswith("/somewhere/story.yaml:7: ")
    assert said in line


def test_a_name_nobody_has_is_told_where_it_is_used() -> None:
    (line,) = problems(LEAST.replace("expect: {}", "expect: {jobs: {trian: {attempt: 1}}}"))
    assert line == "/somewhere/story.yaml:5: expect.jobs: nothing is named 'trian', known: train"


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "1: the file is empty"),
        ("a: [1", "not YAML: "),
        ("- 1", "1: scenario: must be a mapping of names to values"),
        ("clock_scale: &a {x: *a}", "clock_scale: must be a number, not a mapping"),
    ],
)
def test_what_is_no_scenario_at_all_is_said_in_one_line(text: str, said: str) -> None:
    assert said in problems(text)[0]


def test_an_event_that_contains_itself_is_refused() -> None:
    (line,) = problems(f"{LEAST}steps:\n  - event: {{body: &a [*a]}}\n")
    assert "can't be said in JSON" in line


def test_a_file_that_is_missing_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(ScenarioError, match="can't be read") as refused:
        load(tmp_path / "none.yaml")
    assert "\n" not in str(refused.value)
