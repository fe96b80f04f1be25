-- What the arguments must be like that a member of dialoq_user or dialoq_admin gives.
-- Takes: see each function
-- Gives: see each function

-- Whether a verdict on a body is one that a client of Dialoq gives. Its number is read when the message is delivered, in
-- the transaction of whoever delivers it, so it is checked where it enters.
CREATE OR REPLACE FUNCTION dialoq.is_body_fault(p_body_fault text) RETURNS boolean
LANGUAGE sql IMMUTABLE AS $$
    SELECT p_body_fault IS NULL OR p_body_fault = ''
        OR p_body_fault ~ '^-(8430|9615)[|]' AND length(p_body_fault) <= 10000
$$;

-- The words of the refusal of a verdict.
CREATE OR REPLACE FUNCTION dialoq.bad_body_fault(p_body_fault text) RETURNS text
LANGUAGE sql IMMUTABLE AS $$
    SELECT format('p_body_fault is ''%s'', %s characters; it must be empty, or -8430 or -9615, a | and the description, '
        '10000 characters at most', left(p_body_fault, 40), length(p_body_fault))
$$;

-- Refuses a verdict that no client of Dialoq gives.
-- Errors: 60005
CREATE OR REPLACE FUNCTION dialoq.check_body_fault(p_body_fault text) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF NOT dialoq.is_body_fault(p_body_fault) THEN
        PERFORM dialoq.fail(60005, dialoq.bad_body_fault(p_body_fault));
    END IF;
END $$;

-- Refuses NULL, and a number outside of its range.
-- Errors: 60005
CREATE OR REPLACE FUNCTION dialoq.check_range(p_name text, p_value bigint, p_least bigint, p_most bigint) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF p_value IS NULL OR p_value NOT BETWEEN p_least AND p_most THEN
        PERFORM dialoq.fail(60005, format('%s is %s; it must be %s to %s', p_name, coalesce(p_value::text, 'NULL'), p_least, p_most));
    END IF;
END $$;

-- Refuses NULL where an id is needed.
-- Errors: 60005
CREATE OR REPLACE FUNCTION dialoq.check_id(p_name text, p_value uuid) RETURNS void
LANGUAGE plpgsql IMMUTABLE AS $$
BEGIN
    IF p_value IS NULL THEN
        PERFORM dialoq.fail(60005, format('%s is NULL; it must be an id', p_name));
    END IF;
END $$;

-- Refuses a row that a function was asked to write and the table does not take: NULL where a value is needed, a number
-- that is too large, a name that another row has.
-- Errors: 60005
CREATE OR REPLACE FUNCTION dialoq.refuse_row(p_function text, p_why text) RETURNS void
LANGUAGE plpgsql AS $$
BEGIN
    PERFORM dialoq.fail(60005, format('the arguments of dialoq.%s make no row: %s; correct them', p_function, p_why));
END $$;
