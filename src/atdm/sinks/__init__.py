"""Where results are used: FlexMeasures, S2 energy managers, Home Assistant over MQTT.

    settings       which sinks there are, from a TOML table
    results        what is sent: rows observed, the forecast, the offer of flexibility
    flexmeasures, s2, mqtt      results as messages, and how they get there
    send           all of it: open, send, close

Rule 1: what is sent are results of the whole cluster: sums, means, and what follows from them. No home is in them.
Rule 2: a sink that is down or refuses never stops who sends: it comes back as one line.
Rule 3: nothing that comes back is acted upon. A schedule is handed to the caller, an instruction is rejected by name.
Rule 4: passwords come from files or the environment, and are in no message, log or repr. They travel by TLS, or to this
        machine, unless the settings say otherwise.
"""
