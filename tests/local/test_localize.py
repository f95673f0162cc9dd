"""The local copy of an assembly: what it leaves out, what it changes, and that it says so."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest

from reprieve_cli.local.deploy import zipped
from reprieve_cli.local.localize import Localized, LocalizeError, localize

FUNCTION = {
    "Type": "AWS::Lambda::Function",
    "Properties": {
        "Code": {"S3Bucket": "b", "S3Key": "f1.zip"},
        "Environment": {
            "Variables": {
                "ATTESTED_SENDER": "on",
                "NOTICE_SECONDS": "120",
                "SSM_DOCUMENT": {"Ref": "Document"},
            }
        },
    },
    "DependsOn": ["Document", "Role"],
}
BOOT_LIMIT = "systemd-run --unit=reprieve-boot-limit --on-active="
USER_DATA = {
    "Fn::Base64": {"Fn::Join": ["", [f"{BOOT_LIMIT}300 x\nNOTICE_SECONDS=120\nX=", {"Ref": "T"}]]}
}


def an_assembly(folder: Path, **resources: Any) -> Path:
    folder.mkdir()
    template = {
        "Resources": {
            "Function": FUNCTION,
            "Document": {
                "Type": "AWS::SSM::Document",
                "Properties": {"Name": "S-preempt", "Content": {"schemaVersion": "2.2"}},
            },
            "Template": {
                "Type": "AWS::EC2::LaunchTemplate",
                "Properties": {"LaunchTemplateData": {"UserData": USER_DATA}},
            },
            "Layer": {
                "Type": "AWS::Lambda::LayerVersion",
                "Properties": {"Content": {"S3Bucket": "b", "S3Key": "l1.zip"}},
            },
            **resources,
        },
        "Outputs": {"SsmDocument": {"Value": {"Ref": "Document"}}},
        "Parameters": {
            "Image": {
                "Type": "AWS::SSM::Parameter::Value<AWS::EC2::Image::Id>",
                "Default": "/aws/service/image",
            }
        },
    }
    for name, files in {
        "asset.f1": ["handler.py"],
        "asset.l1": ["python/pydantic_core/core.so"],
        "asset.h1": ["install.sh"],
    }.items():
        for file in files:
            path = folder / name / file
            path.parent.mkdir(parents=True)
            path.write_text(name)
    assets = {
        digest: {
            "displayName": digest,
            "source": {"path": f"asset.{digest}", "packaging": "zip"},
        }
        for digest in ("f1", "l1", "h1")
    }
    (folder / "S.template.json").write_text(json.dumps(template))
    (folder / "S.assets.json").write_text(json.dumps({"files": assets}))
    return folder


@pytest.fixture
def layer(tmp_path: Path) -> Path:
    (tmp_path / "layer" / "python").mkdir(parents=True)
    (tmp_path / "layer" / "python" / "local.so").touch()
    return tmp_path / "layer"


def localized(tmp_path: Path, layer: Path, **resources: Any) -> tuple[Localized, dict[str, Any]]:
    assembly = an_assembly(tmp_path / "cdk.out", **resources)
    result = localize(assembly, "S", tmp_path / "local", notice_seconds=6.0, layer=layer)
    template = json.loads((result.assembly_dir / "S.template.json").read_text())
    return result, template


def test_the_document_is_left_out_and_its_name_takes_its_place(tmp_path: Path, layer: Path) -> None:
    result, template = localized(tmp_path, layer)

    assert result.removed == [("Document", "AWS::SSM::Document")]
    assert template["Outputs"]["SsmDocument"]["Value"] == "S-preempt"
    function = template["Resources"]["Function"]
    assert function["Properties"]["Environment"]["Variables"]["SSM_DOCUMENT"] == "S-preempt"
    assert function["DependsOn"] == ["Role"]


def test_every_other_difference_is_told(tmp_path: Path, layer: Path) -> None:
    result, template = localized(tmp_path, layer)

    assert sorted(line.partition(":")[0] for line in result.changed) == [
        *("Function", "Function", "Template"),
        *("h1", "image of /aws/service/image", "l1"),
    ]
    variables = template["Resources"]["Function"]["Properties"]["Environment"]["Variables"]
    assert (variables["ATTESTED_SENDER"], variables["NOTICE_SECONDS"]) == ("off", "6.0")
    text = json.dumps(template["Resources"]["Template"])
    assert f"{BOOT_LIMIT}15 x\\nNOTICE_SECONDS=6.0\\n" in text
    assert template["Parameters"]["Image"]["Type"] == "String"


def test_a_compiled_layer_is_swapped_and_other_code_stays(tmp_path: Path, layer: Path) -> None:
    result, _ = localized(tmp_path, layer)

    assert (result.assembly_dir / "asset.l1" / "python" / "local.so").exists()
    assert (result.assembly_dir / "asset.f1" / "handler.py").read_text() == "asset.f1"


def test_our_own_layer_is_swapped_too_and_holds_byte_code_for_this_interpreter(
    tmp_path: Path, layer: Path
) -> None:
    assembly = an_assembly(tmp_path / "cdk.out")
    (assembly / "asset.f1" / "python" / "reprieve").mkdir(parents=True)

    result = localize(assembly, "S", tmp_path / "local", notice_seconds=6.0, layer=layer)

    package = result.assembly_dir / "asset.f1" / "python" / "reprieve"
    assert list(package.glob(f"__pycache__/protocol.{sys.implementation.cache_tag}.pyc"))
    assert any(line.startswith("f1: built for Python") for line in result.changed)


def test_what_only_hosts_download_is_not_uploaded(tmp_path: Path, layer: Path) -> None:
    result, _ = localized(tmp_path, layer)

    assets = json.loads((result.assembly_dir / "S.assets.json").read_text())
    assert sorted(assets["files"]) == ["f1", "l1"]


def test_the_original_is_untouched(tmp_path: Path, layer: Path) -> None:
    assembly = an_assembly(tmp_path / "cdk.out")
    before = (assembly / "S.template.json").read_bytes()

    localize(assembly, "S", tmp_path / "local", notice_seconds=6.0, layer=layer)
    localize(assembly, "S", tmp_path / "local", notice_seconds=6.0, layer=layer)  # again is fine

    assert (assembly / "S.template.json").read_bytes() == before


def test_alarms_over_several_metrics_and_other_refused_types_are_left_out(
    tmp_path: Path, layer: Path
) -> None:
    result, template = localized(
        tmp_path,
        layer,
        Math={"Type": "AWS::CloudWatch::Alarm", "Properties": {"Metrics": []}},
        Plain={"Type": "AWS::CloudWatch::Alarm", "Properties": {"MetricName": "m"}},
        Drill={"Type": "AWS::FIS::ExperimentTemplate", "Properties": {}},
    )

    assert {name for name, _ in result.removed} == {"Document", "Math", "Drill"}
    assert "Plain" in template["Resources"]


def test_a_reference_to_something_left_out_without_a_name_is_an_error(
    tmp_path: Path, layer: Path
) -> None:
    with pytest.raises(LocalizeError, match="Drill is left out"):
        localized(
            tmp_path,
            layer,
            Drill={"Type": "AWS::FIS::ExperimentTemplate", "Properties": {}},
            Plain={"Type": "AWS::CloudWatch::Alarm", "Properties": {"X": {"Ref": "Drill"}}},
        )


def test_a_document_without_a_name_is_an_error(tmp_path: Path, layer: Path) -> None:
    nameless = {"Type": "AWS::SSM::Document", "Properties": {"Content": {}}}

    with pytest.raises(LocalizeError, match="explicit Name"):
        localized(tmp_path, layer, Document=nameless)


def test_a_missing_stack_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LocalizeError, match="holds no stack S"):
        localize(tmp_path, "S", tmp_path / "local", notice_seconds=6.0)


def test_the_same_content_gives_the_same_zip(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name / "sub").mkdir(parents=True)
        (tmp_path / name / "sub" / "file.py").write_text("x")
        (tmp_path / name / "other.py").write_text("y")

    assert zipped(tmp_path / "one") == zipped(tmp_path / "two")
