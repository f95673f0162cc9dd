"""Outcomes of drills as JUnit's XML, which CI systems show: a suite each, a case an expectation."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable

from reprieve_cli.drill import report
from reprieve_cli.drill.engine import Outcome

_NOT_XML = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def document(outcomes: Iterable[Outcome]) -> str:
    """Return the whole file."""
    root = ET.Element("testsuites", name="reprieve drill")
    for outcome in outcomes:
        root.append(_suite(outcome))
    ET.indent(root)
    return ET.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def _suite(outcome: Outcome) -> ET.Element:
    scenario = outcome.scenario
    failures = sum(not finding.holds for finding in outcome.findings)
    suite = ET.Element(
        "testsuite",
        name=_clean(scenario.name),
        file=str(scenario.path),
        tests=str(len(outcome.findings) + 1),
        failures=str(failures),
        errors=str(int(bool(outcome.stuck))),
        time=f"{outcome.seconds:.3f}",
    )
    steps = _case(suite, outcome, "every step could be done")
    if outcome.stuck:
        ET.SubElement(steps, "error", message=_clean(outcome.stuck))
    for finding in outcome.findings:
        case = _case(suite, outcome, finding.what)
        if not finding.holds:
            said = f"expected {finding.expected}, seen {finding.seen}"
            told = ET.SubElement(case, "failure", message=_clean(said))
            told.text = _clean(f"expected  {finding.expected}\nseen      {finding.seen}\n")
    ET.SubElement(suite, "system-out").text = _clean("\n".join(report.timeline(outcome)))
    return suite


def _case(suite: ET.Element, outcome: Outcome, name: str) -> ET.Element:
    return ET.SubElement(suite, "testcase", classname=_clean(outcome.scenario.name), name=name)


def _clean(text: str) -> str:
    """Leave out what XML can't say: what a job or a service wrote may hold anything."""
    return _NOT_XML.sub("?", text)
