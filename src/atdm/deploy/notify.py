"""What systemd is told of a service of `Type=notify`: ready, how it is, that it still turns, that it stops.

The protocol is sd_notify(3): datagrams of NAME=VALUE lines to the socket in $NOTIFY_SOCKET. Without it nothing is sent.
"""

import asyncio
import contextlib
import os
import socket


def listens() -> bool:
    """Whether there is somebody to tell."""
    return os.environ.get("NOTIFY_SOCKET", "").startswith(("/", "@"))


def notify(*lines: str) -> None:
    """Tell systemd, if it listens. Never fails: a service does its work whether or not somebody is told."""
    if not listens():
        return
    address = os.environ["NOTIFY_SOCKET"]
    with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM | socket.SOCK_CLOEXEC) as to:
        to.setblocking(False)
        to.sendto("\n".join(lines).encode(), "\0" + address[1:] if address.startswith("@") else address)


async def keep_watchdog() -> None:
    """Say twice in each interval of the watchdog that the event loop turns; for ever, unless there is no watchdog."""
    wanted = os.environ.get("WATCHDOG_USEC", "")
    if not wanted.isdecimal() or os.environ.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
        await asyncio.Event().wait()
    while True:
        notify("WATCHDOG=1")
        await asyncio.sleep(int(wanted) / 2e6)
