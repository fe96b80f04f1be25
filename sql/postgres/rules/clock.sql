-- The time, and ids that ascend with it.
-- Takes, Gives, Errors, Locks: see each function

-- The server's clock, or the tests'.
CREATE OR REPLACE FUNCTION dialoq.current_time_utc() RETURNS timestamptz
LANGUAGE plpgsql AS $$
BEGIN
    RETURN (SELECT coalesce(b.manual_now, clock_timestamp()) FROM dialoq.broker AS b);
END $$;

-- A new id, version 7: ids ascend with time, so that rows keyed by them stay together and conversations of one group are
-- received from in the order in which they came to be.
CREATE OR REPLACE FUNCTION dialoq.next_id() RETURNS uuid
LANGUAGE plpgsql AS $$
DECLARE
    v_us bigint := extract(epoch FROM clock_timestamp()) * 1000000;
BEGIN
    RETURN lpad(to_hex(v_us / 1000), 12, '0') || '7' || lpad(to_hex(v_us % 1000 * 4096 / 1000), 3, '0')
        || substr(gen_random_uuid()::text, 20);
END $$;
