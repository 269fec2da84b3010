"""A real FlexMeasures server for one test, run by the Python it is installed in, not by ours.

    PYTHON flexmeasures_server.py DATABASE_URL PORT

Its migrations make the tables, its HTTP API listens on the loopback interface, its worker does the scheduling. Redis is
replaced by fakeredis, in this process, as in FlexMeasures' own tests. Prints one line of JSON when it is ready: the ids
of the sensors.
"""

import json
import sys
import threading
import time
from datetime import timedelta

EMAIL, PASSWORD = "desk@example.org", "not-a-secret-1"
SENSORS = {  # name → unit
    "temperature": "°C", "temperature_low": "°C", "temperature_high": "°C",
    "load": "kW", "load_low": "kW", "load_high": "kW", "schedule": "kW",
}  # fmt: skip


def main(database: str, port: int) -> None:
    from flexmeasures.utils import config_defaults

    config_defaults.TestingConfig.SQLALCHEMY_DATABASE_URI = database
    # FlexMeasures 1.0.1 says "1 week", which Flask-Security 5.9 no longer reads
    config_defaults.Config.SECURITY_TWO_FACTOR_LOGIN_VALIDITY = timedelta(weeks=1)
    from flask_migrate import upgrade
    from flexmeasures.app import create
    from rq import SimpleWorker
    from rq.timeouts import BaseDeathPenalty

    app = create(env="testing")
    with app.app_context():
        upgrade(directory=migrations())
        sensors = fill()

    class NoTimeout(BaseDeathPenalty):
        """Signals are for the main thread."""

        def setup_death_penalty(self) -> None: ...
        def cancel_death_penalty(self) -> None: ...

    class Worker(SimpleWorker):
        death_penalty_class = NoTimeout

        def _install_signal_handlers(self) -> None: ...

    def work() -> None:
        with app.app_context():
            while True:
                Worker([app.queues["scheduling"], app.queues["ingestion"]], connection=app.redis_connection).work(
                    burst=True
                )
                time.sleep(0.2)

    threading.Thread(target=work, daemon=True).start()
    print(json.dumps(sensors), flush=True)
    sys.stdout = sys.stderr  # nobody reads on
    app.run("127.0.0.1", port, threaded=True, use_reloader=False, debug=False)


def migrations() -> str:
    from pathlib import Path

    import flexmeasures

    return str(Path(flexmeasures.__file__).parent / "data" / "migrations")


def fill() -> dict[str, int]:
    """An account, a user, and one asset with its sensors."""
    from flexmeasures.data import db
    from flexmeasures.data.models.generic_assets import GenericAsset, GenericAssetType
    from flexmeasures.data.models.time_series import Sensor
    from flexmeasures.data.services.users import create_user

    user = create_user(
        username="desk", email=EMAIL, password=PASSWORD, account_name="cluster", check_email_deliverability=False,
        user_roles="account-admin",
    )  # fmt: skip
    kind = GenericAssetType(name="cluster")
    db.session.add(kind)
    db.session.flush()
    asset = GenericAsset(name="cluster", generic_asset_type=kind, owner=user.account)
    db.session.add(asset)
    db.session.flush()
    step = timedelta(hours=1)
    sensors = {
        name: Sensor(name=name, unit=unit, event_resolution=step, generic_asset=asset, timezone="UTC")
        for name, unit in SENSORS.items()
    }
    prices = Sensor(name="price", unit="EUR/kWh", event_resolution=step, generic_asset=asset, timezone="UTC")
    db.session.add_all([*sensors.values(), prices])
    db.session.commit()
    return {**{name: sensor.id for name, sensor in sensors.items()}, "price": prices.id}


if __name__ == "__main__":
    main(sys.argv[1], int(sys.argv[2]))
