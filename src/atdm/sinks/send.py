"""Send results to every sink there is; what fails comes back as a line."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from atdm.errors import RunAborted
from atdm.sinks import flexmeasures, mqtt, s2
from atdm.sinks.results import Results, Sent
from atdm.sinks.settings import S2, FlexMeasures, Mqtt, Settings

LONGEST = 300  # characters of another program's message


class Sinks:
    """Where results go: opened by the first sending, asked after each forecast, closed at the end.

    `send` blocks for as long as the slowest sink takes, by its `patience`: from a loop, call it in a thread of its own.
    """

    def __init__(self, settings: Mapping[str, Settings], *, lasting: bool = True) -> None:
        """settings: by kind, as `read_sinks` gives them; lasting: whether more will be sent, until `close` says not."""
        self._settings, self._lasting = dict(settings), lasting
        self._broker: mqtt.Connection | None = None

    def send(self, results: Results) -> list[Sent]:
        """Send to each sink in turn. Never raises because of a sink."""
        return [self._try(kind, to, results) for kind, to in self._settings.items()]

    def _try(self, kind: str, to: Settings, results: Results) -> Sent:
        sent: list[int] = []
        try:
            done = self._send(to, results, sent)
            return replace(done, to=f"{kind} {done.to}")
        except Exception as error:  # noqa: BLE001 - whatever a library or a server comes up with: Rule 2
            words = " ".join(f"{error or type(error).__name__}".split())
            return Sent(to=kind, messages=len(sent), failed=_without_secrets(to, words)[:LONGEST])

    def _send(self, to: Settings, results: Results, sent: list[int]) -> Sent:
        if isinstance(to, FlexMeasures):
            return flexmeasures.send(to, results, sent)
        if isinstance(to, S2):
            return s2.send(to, results, sent)
        if isinstance(to, Mqtt):
            ready = mqtt.messages(to, results)
            if self._broker is None:
                self._broker = mqtt.Connection(to)
            self._broker.publish(ready, sent)
            return Sent(to=f"{to.host}:{to.port_used}", messages=len(sent))
        raise RunAborted(f"no sink takes settings of {type(to).__name__}")

    def close(self) -> None:
        """Let go of connections; where sending was to last, say that it ended."""
        if self._broker is not None:
            self._broker.close(gone=self._lasting)
            self._broker = None


def dry_run(settings: Mapping[str, Settings], results: Results) -> list[dict[str, Any]]:
    """What would be sent, as JSON objects that say to whom."""
    found: list[dict[str, Any]] = []
    for kind, to in settings.items():
        parts: list[dict[str, Any]] = []
        if isinstance(to, FlexMeasures):
            parts = flexmeasures.messages(to, results)
        elif isinstance(to, S2):
            parts = [{"when": when, **message} for when, part in s2.messages(to, results).items() for message in part]
        elif isinstance(to, Mqtt):
            parts = [message._asdict() for message in mqtt.messages(to, results)]
        found += [{"to": kind, **part} for part in parts]
    return found


def _without_secrets(to: Settings, words: str) -> str:
    """A library may quote what it was given."""
    for name in ("password", "token"):
        try:
            secret = getattr(to, name)()
        except Exception:  # noqa: BLE001 - there is none, or it cannot be read, which is what `words` say
            continue
        words = words if secret is None else secret.blot(words)
    return words
