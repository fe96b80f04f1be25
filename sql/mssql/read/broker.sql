-- Settings, the version that every change of a definition raises, and what the server's clock shows.
-- The client reads this before all other definitions, on the connection on which it records what its transactions receive
-- (begin_attempt). Without the limit, which the session keeps, a transaction could wait for a read that waits for a lock of that
-- transaction.
-- Takes: nothing
-- Gives: service_broker_guid, is_broker_enabled, is_honor_broker_priority_on, next_object_id, catalog_version, now_at;
--     is_manual_now, whether a test has set that time
SET LOCK_TIMEOUT 1000;
SELECT
    service_broker_guid, is_broker_enabled, is_honor_broker_priority_on, next_object_id, catalog_version, now_at,
    is_manual_now
FROM dialoq.read_broker
