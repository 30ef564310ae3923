"""Words of the master's core: settings (`job_config`), durable records and writes, effects, events.

The core is one function, `job.handle(state, event, now)`: frozen values in, frozen values out.  It never waits.  What
it wants done is an effect, and what must be durable before an answer leaves is sent by the step that handles the
effect's outcome (persist before reply).

Not here: messages to members (`api.messages`), the state (`job.state`), decisions (the other packages of `job`).
"""
