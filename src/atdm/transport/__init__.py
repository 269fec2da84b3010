"""How bytes get from one party to another: in one process, between processes, over NATS. It decides nothing."""
