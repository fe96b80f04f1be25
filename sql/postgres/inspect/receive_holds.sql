-- The queues from which a definition that waits holds receives back (rules/definition_wait.sql). A hold whose time is over may still be there.
-- Takes: nothing
-- Gives: queue_id, held_until (microseconds of UTC)
SELECT q.queue_id, (extract(epoch FROM q.receives_held_until) * 1000000.0)::bigint AS held_until
FROM dialoq.read_service_queues AS q
WHERE q.receives_held_until IS NOT NULL
