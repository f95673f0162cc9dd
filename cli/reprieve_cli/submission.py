"""What a person wants run, checked before anything is stored, then queued."""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

from reprieve.domain.capacity import Pool
from reprieve.domain.catalogue import CAPABILITY, GPU_TYPES
from reprieve.domain.checkpoint import code_key
from reprieve.domain.job import Job
from reprieve.domain.needs import Needs
from reprieve.domain.planning import impossible
from reprieve.domain.spec import JobSpec, Remedy
from reprieve.usecases.submit import Submit
from reprieve_agent import profiles
from reprieve_cli import money, phrases, saving
from reprieve_cli.bundle import Bundle, pack
from reprieve_cli.errors import BadInputError
from reprieve_cli.stack import Cloud, Stack

VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
ARN = re.compile(r"arn:aws[\w-]*:(secretsmanager|ssm):[a-z0-9-]+:\d{12}:(secret:|parameter/)\S+")
LOOKS_SECRET = re.compile(
    r"SECRET|PASSW|TOKEN$|API_?KEY|PRIVATE_?KEY|ACCESS_?KEY|CREDENTIAL", re.IGNORECASE
)
IMAGE = re.compile(r"[a-z0-9][\w.:/-]*(@sha256:[0-9a-f]{64})?")
SCRIPT = re.compile(r"[\w.-][\w./-]*\.(py|sh)")
OURS = "REPRIEVE_"  # the host sets these

NEVER = "never"
SAVE_EVERY_LEAST = timedelta(seconds=1)
SAVE_EVERY_MOST = timedelta(days=1)
LONGEST_NAME = 64
MOST_SPEC_BYTES = 32_768  # the spec travels in every lease, whose row must stay small


@dataclass(frozen=True, slots=True, kw_only=True)
class Request:
    """What the person gave, as they gave it; ``setup`` is a shell line."""

    command: tuple[str, ...]
    pool: str | None = None
    name: str | None = None
    code: Path | None = None
    setup: str | None = None
    env: tuple[str, ...] = ()
    secrets: tuple[str, ...] = ()
    save_every: str | None = None
    deadline: str | None = None
    work: str | None = None
    steps: int | None = None
    if_stuck: str = "park"
    if_spot_loses: str = "on-demand"
    max_restarts: int = 3
    gpus: int | None = None
    gpu_memory: float | None = None
    gpu_model: str | None = None
    capabilities: str | None = None
    precision: str | None = None
    nvlink: bool = False
    host_memory: int | None = None
    same_gpus: bool = False
    fallback_pool: str | None = None
    image: str | None = None
    profile: tuple[str, ...] = ()
    no_helper: bool = False


def check(
    request: Request, cloud: Callable[[], Cloud], *, warn: Callable[[str], None]
) -> tuple[Cloud, Pool, JobSpec]:
    """Return what *request* comes to, without writing anything. Raises ``BadInputError``."""
    _name(request)
    spec = _spec(request)
    with tempfile.TemporaryDirectory(prefix="reprieve-") as scratch:
        bundle = pack(request.code, to=Path(scratch, "code.zip")) if request.code else None
        for warning in _warnings(request, bundle):
            warn(warning)
    to = cloud()
    pool = _pool(request, spec, to.stack)
    return to, pool, money.bound(spec, _wish(request), pool, now=to.now())


def submit(request: Request, cloud: Callable[[], Cloud], *, warn: Callable[[str], None]) -> Job:
    """
    Check *request*, upload its code unless the bucket has it, and queue the job.

    *cloud* is called once everything that needs no cloud was found good. Raises ``BadInputError``.
    """
    name = _name(request)
    spec = _spec(request)
    with tempfile.TemporaryDirectory(prefix="reprieve-") as scratch:
        bundle = pack(request.code, to=Path(scratch, "code.zip")) if request.code else None
        for warning in _warnings(request, bundle):
            warn(warning)
        to = cloud()
        pool = _pool(request, spec, to.stack)
        spec = money.bound(spec, _wish(request), pool, now=to.now())
        if bundle:
            to.objects.put_new(code_key(bundle.sha256), bundle.path)
            spec = replace(spec, code=bundle.sha256)
    use_case = Submit(rows=to.rows, mail=to.mail, now=to.now)
    return use_case(name=name, pool=pool.name, spec=spec)


def _spec(request: Request) -> JobSpec:
    if not request.command or not request.command[0].strip():
        raise BadInputError("no command: end with -- and what to run, as in `-- python train.py`")
    spec = JobSpec(
        command=request.command,
        setup=("sh", "-c", request.setup) if request.setup else (),
        env=_env(request.env),
        secrets=_secrets(request.secrets),
        max_restarts=request.max_restarts,
        save_every=_save_every(request.save_every),
        periodic_saves=request.save_every != NEVER,
        if_stuck=Remedy(request.if_stuck),
        if_spot_loses=Remedy(request.if_spot_loses),
        needs=_needs(request),
        fallback_pool=request.fallback_pool,
        image=_image(request.image),
        profile=_profile(request.profile),
        helper=not request.no_helper,
    )
    both = sorted(spec.env.keys() & spec.secrets.keys())
    if both:
        raise BadInputError(f"{both[0]} is given by --env and by --secret: keep one")
    size = sum(len(text.encode()) for text in _texts(spec))
    if size > MOST_SPEC_BYTES:
        raise BadInputError(
            f"command, --setup, --env and the rest are {size:,} bytes, the limit is "
            f"{MOST_SPEC_BYTES:,}: put long values into a file of --code"
        )
    nul = next((text for text in _texts(spec) if "\0" in text), None)
    if nul is not None:
        raise BadInputError("a value holds a NUL byte, which no command line can carry")
    return spec


def _wish(request: Request) -> money.Wish | None:
    """Return what is said about a deadline, each part of which needs the others."""
    return money.wish(request.deadline, request.work, request.steps)


def _needs(request: Request) -> Needs:
    """Return what the job asks of a host; refuse what no GPU host of EC2 has."""
    capabilities = tuple(part.strip() for part in (request.capabilities or "").split(",") if part)
    for capability in capabilities:
        if not CAPABILITY.fullmatch(capability):
            raise BadInputError(
                f"--compute-capability {capability!r} is none: write 8.0, or 8.0+ for code with PTX"
            )
    models = sorted({host.gpu for host in GPU_TYPES.values()})
    if request.gpu_model is not None and request.gpu_model not in models:
        raise BadInputError(
            f"--gpu-model {request.gpu_model!r} isn't sold: known are {', '.join(models)}"
        )
    if request.same_gpus and not (request.gpu_model and request.gpus):
        raise BadInputError("--same-gpus needs --gpu-model and --gpus: which, and how many")
    return Needs(
        gpus=request.gpus or 0,
        gpu_memory_mib=round((request.gpu_memory or 0.0) * 1024),
        gpu_model=request.gpu_model or "",
        capabilities=capabilities,
        precision=request.precision or "",
        nvlink=request.nvlink,
        host_memory_gib=request.host_memory or 0,
        exact=request.same_gpus,
    )


def _pool(request: Request, spec: JobSpec, stack: Stack) -> Pool:
    """Return the pool that runs the job, if one of its hosts could."""
    pool = stack.pool(request.pool)
    _check_role(spec, stack)
    wanted = [pool]
    if request.fallback_pool is not None:
        if request.fallback_pool == pool.name:
            raise BadInputError(f"--fallback-pool {pool.name} is the job's own pool: name another")
        wanted.append(stack.pool(request.fallback_pool))
    for one in wanted:
        why = impossible(spec.needs, one)
        if why:
            raise BadInputError(f"pool {one.name}: {why}")
    return pool


def _check_role(spec: JobSpec, stack: Stack) -> None:
    if spec.secrets and "JobRole" not in stack.outputs:
        raise BadInputError(
            f"--secret is read in the jobs' own role, and stack {stack.name} has none: "
            "set job_role_arn in its configuration and deploy"
        )


def _texts(spec: JobSpec) -> list[str]:
    pairs = [*spec.env.items(), *spec.secrets.items()]
    return [
        *spec.command,
        *spec.setup,
        *spec.profile,
        spec.image or "",
        *(t for pair in pairs for t in pair),
    ]


def _env(given: Sequence[str]) -> dict[str, str]:
    return dict(_pair(text, "--env", "K=V") for text in given)


def _secrets(given: Sequence[str]) -> dict[str, str]:
    found = dict(_pair(text, "--secret", "NAME=ARN") for text in given)
    for name, arn in found.items():
        if not ARN.fullmatch(arn):  # it may be the secret itself: never repeat it
            raise BadInputError(
                f"--secret {name}: give the ARN of a Secrets Manager secret or of an SSM "
                "parameter, never the value"
            )
    return found


def _pair(text: str, option: str, form: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals:
        raise BadInputError(f"{option} takes {form}: there is no = in it")
    if not VARIABLE.fullmatch(name):
        raise BadInputError(f"{option} {name!r} can't name a variable: letters, digits and _ only")
    if name.startswith(OURS):
        raise BadInputError(f"{option} {name}: names in {OURS} are set by the host, choose another")
    return name, value


def _image(given: str | None) -> str | None:
    if given is not None and not IMAGE.fullmatch(given):
        raise BadInputError(f"--image {given!r} names no image: registry/name:tag or name@sha256:…")
    return given


def _profile(given: tuple[str, ...]) -> tuple[str, ...]:
    try:
        profiles.parse(given)
    except profiles.ProfileError as error:
        raise BadInputError(f"--profile {error}") from error
    return given


def _save_every(text: str | None) -> timedelta | None:
    if text is None or text == NEVER:
        return None
    span = phrases.parse_duration(text)
    if span is None:
        raise BadInputError(
            f"--save-every {text!r} is no length of time: write 90s, 10m, 1h or never"
        )
    if not SAVE_EVERY_LEAST <= span <= SAVE_EVERY_MOST:
        raise BadInputError(f"--save-every {text} is out of range: 1s to 24h")
    return span


def _name(request: Request) -> str:
    if request.name is not None:
        name = request.name.strip()
        if not name or len(name) > LONGEST_NAME or not name.isprintable():
            raise BadInputError(f"--name takes 1 to {LONGEST_NAME} printable characters")
        return name
    script = next((word for word in request.command if SCRIPT.fullmatch(word)), None)
    return Path(script or next(iter(request.command), "job")).stem[:LONGEST_NAME] or "job"


def _warnings(request: Request, bundle: Bundle | None) -> list[str]:
    found = [
        f"--env {name} looks like a secret, and its value is stored with the job: "
        f"give its ARN with --secret"
        for name in _env(request.env)
        if LOOKS_SECRET.search(name)
    ]
    script = next((word for word in request.command if SCRIPT.fullmatch(word)), None)
    if bundle and script and not request.setup and str(Path(script)) not in bundle.files:
        found.append(f"{script} isn't in --code {request.code}, where the command runs")
    if request.image and "@sha256:" not in request.image:
        found.append(
            f"--image {request.image} may mean another image when the job resumes: "
            "name it by digest (name@sha256:...)"
        )
    if not _saves(request, bundle):
        found.append(
            f"{script or 'this job'} neither imports reprieve_job nor names REPRIEVE_CKPT_DIR: "
            "after an interruption it starts again from the beginning"
        )
    return found


def _saves(request: Request, bundle: Bundle | None) -> bool:
    if any("REPRIEVE_CKPT_DIR" in word for word in request.command):
        return True
    if bundle is None:
        return False
    started = {str(Path(word)) for word in request.command}
    started |= {
        f"{word.replace('.', '/')}.py" for word in request.command
    }  # python -m package.name
    return saving.saves(bundle.texts, started & bundle.files)
