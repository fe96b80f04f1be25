-- Ends the limit of transaction/limit.sql: what was set before it counts again, unless the user's statement has set another.
-- Takes: the limit's milliseconds for {milliseconds}
-- Gives: nothing
SELECT pg_catalog.set_config('statement_timeout', CASE
        WHEN pg_catalog.current_setting('statement_timeout')::pg_catalog.interval
            OPERATOR(pg_catalog.=) '{milliseconds} ms'::pg_catalog.interval
            THEN pg_catalog.current_setting('dialoq.statement_timeout')
        ELSE pg_catalog.current_setting('statement_timeout')
    END, true)
