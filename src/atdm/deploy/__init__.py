"""A deployment: enrolment, keys and state on disk, agents, the aggregator, observation, and a rehearsal of it all."""
