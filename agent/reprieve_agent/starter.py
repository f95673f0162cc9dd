"""The way to a running job: folders, secrets, code, setup, checkpoint, process."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

from reprieve.domain.lease import Cause, LeaseKey
from reprieve.domain.spec import JobSpec
from reprieve.ports.checkpoints import AbortedError
from reprieve_agent import actions as do
from reprieve_agent import adoption, container_supervisor, contract, profiles
from reprieve_agent import events as on
from reprieve_agent.code import CodeCache, SetupError
from reprieve_agent.config import Config
from reprieve_agent.estimator import Estimates
from reprieve_agent.events import Event
from reprieve_agent.places import Places
from reprieve_agent.preparation import Errand
from reprieve_agent.profiles import ProfileError
from reprieve_agent.restore import NoValidCheckpointError, Restored, Restorer
from reprieve_agent.secret_values import Secrets
from reprieve_agent.state import Process
from reprieve_agent.supervisor import JobStart, LaunchError, TooLateError, begun
from reprieve_agent.surroundings import Host, Outside

log = logging.getLogger(__name__)

PREPARATION_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class Preparation:
    """The start of one attempt: *stop* calls it off, *idle* tells that nothing of it runs."""

    stop: threading.Event = field(default_factory=threading.Event)
    idle: threading.Event = field(default_factory=threading.Event)


class Starter:
    """Prepares attempts and starts their jobs; its calls block, so each has a thread."""

    def __init__(
        self, config: Config, host: Host, outside: Outside, emit: Callable[[Event], None]
    ) -> None:
        self._config = config
        self._host = host
        self._outside = outside
        self._emit = emit
        self._code = CodeCache(config.state_dir / "code", outside.store)
        self._secrets = Secrets(outside.role)
        self._preparations: dict[LeaseKey, Preparation] = {}

    def begin(self, key: LeaseKey) -> Preparation:
        """Return the preparation that is about to run; only the loop's own thread asks."""
        preparation = self._preparation(key)
        preparation.idle.clear()
        return preparation

    def call_off(self, key: LeaseKey) -> None:
        """Let the preparation of *key* end soon, and never start its job."""
        self._preparation(key).stop.set()

    def forget(self, key: LeaseKey) -> None:
        """Let go of what is known of *key* once nothing works on its files any more."""
        preparation = self._preparations.pop(key, None)
        if preparation:
            preparation.stop.set()
            preparation.idle.wait(PREPARATION_SECONDS)
        self._secrets.forget(key)

    def prepare(self, action: do.Prepare, preparation: Preparation) -> None:
        """Fetch code and checkpoint, and say how that went."""
        key = action.key
        try:
            restored = self._prepared(action, preparation.stop)
        except AbortedError:
            log.info("preparation called off", extra={"lease": str(key)})
        except NoValidCheckpointError as error:
            self._emit(on.PreparationFailed(key, Cause.NO_VALID_CHECKPOINT, str(error)))
        except (SetupError, ProfileError, OSError) as error:
            self._emit(on.PreparationFailed(key, Cause.SETUP_FAILED, str(error)))
        except Exception as error:
            log.exception("preparation failed", extra={"lease": str(key)})
            self._emit(on.PreparationFailed(key, Cause.SETUP_FAILED, repr(error)))
        else:
            estimates = Estimates.carried(restored.measured, self._host.identity.type)
            self._emit(on.Prepared(key, restored.base, restored.step, estimates))
        finally:
            preparation.idle.set()

    def launch(self, action: do.Launch) -> Process | None:
        """Start the job and return its process, or None after saying why there is none."""
        key, spec = action.key, action.lease.spec
        places = self._places(key)
        try:
            stop = self._preparation(key).stop
            secrets = {} if begun(places) else self._secrets.of(key, spec, places, stop)
        except AbortedError:
            return None
        except SetupError as error:
            self._emit(on.PreparationFailed(key, Cause.SETUP_FAILED, str(error)))
            return None
        promised = contract.environment(
            key,
            places,
            spec=spec,
            base_step=action.base_step,
            grace=self._config.clock.notice - self._config.clock.margin,
        )
        start = JobStart(
            key=key,
            places=places,
            argv=spec.command,
            env=self._plain_environment(key, spec) | promised,
            cwd=self._code.place(spec, work=places.work),
            account=self._host.account,
            secrets=secrets,
            image=spec.image,
        )
        try:
            return self._outside.supervisor.launch(start, not_after=action.not_after)
        except TooLateError:
            self._emit(on.TooLate(key))
        except (LaunchError, OSError) as error:
            log.exception("job not started", extra={"lease": str(key)})
            self._emit(on.JobExited(key, None, str(error)))
        return None

    def _preparation(self, key: LeaseKey) -> Preparation:
        preparation = self._preparations.get(key)
        if preparation is None:
            preparation = self._preparations[key] = Preparation()
            preparation.idle.set()
        return preparation

    def _prepared(self, action: do.Prepare, stop: threading.Event) -> Restored:
        key, spec, account = action.key, action.lease.spec, self._host.account
        profile = profiles.parse(spec.profile)
        places = self._places(key)
        places.make(account)
        if spec.helper:
            contract.lay_helper(places)
        self._secrets.of(key, spec, places, stop)  # before anything that takes longer
        if spec.image is not None:
            self._pull(key, spec.image, stop).run(places.work)
        self._code.prepare(
            spec,
            work=places.work,
            account=account,
            setup=self._setup(key, spec, stop),
            stopped=stop.is_set,
        )
        restorer = Restorer(
            self._outside.store,
            report=lambda manifest, why: self._emit(on.Quarantined(key, manifest, why)),
            stopped=stop.is_set,
            by=self._host.identity.instance_id,
        )
        restored = (
            restorer.restore_exactly(action.lease.base, places.resume, account)
            if action.exactly
            else restorer.restore(action.lease, places.resume, account)
        )
        if profile:
            adoption.lay_out(places, account)
        return restored

    def _setup(self, key: LeaseKey, spec: JobSpec, stop: threading.Event) -> Errand:
        return Errand(
            "setup",
            key=key,
            argv=spec.setup,
            env=self._plain_environment(key, spec),
            places=self._places(key).setup,
            account=self._host.account,
            supervisor=self._outside.supervisor,
            stop=stop,
            image=spec.image,
        )

    def _pull(self, key: LeaseKey, image: str, stop: threading.Event) -> Errand:
        """Return what fetches the image, before the lease is sealed and the job awaited."""
        return Errand(
            "image",
            key=key,
            argv=container_supervisor.pull(image),
            env=container_supervisor.engine_env(),
            places=self._places(key).image,
            account=None,
            supervisor=self._outside.supervisor,
            stop=stop,
        )

    def _plain_environment(self, key: LeaseKey, spec: JobSpec) -> dict[str, str]:
        plain = contract.plain_environment(
            spec, path=self._config.job_path, home=self._host.home, user=self._host.user
        )
        role = self._outside.role
        return (role.environment(key, self._places(key)) if role else {}) | plain

    def _places(self, key: LeaseKey) -> Places:
        return Places.of(key, state_dir=self._config.state_dir, run_dir=self._config.run_dir)
