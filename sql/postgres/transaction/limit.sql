-- How long each statement after it may run: the user's own SQL, if sql_timeout says so. A shorter limit that is set already
-- stays; what was set is kept for transaction/no_limit.sql.
-- Takes: true in a transaction, else false for {is_local}; milliseconds for {milliseconds}
-- Gives: nothing
SELECT pg_catalog.set_config('dialoq.statement_timeout', pg_catalog.current_setting('statement_timeout'), {is_local}),
    pg_catalog.set_config('statement_timeout', CASE
        WHEN pg_catalog.current_setting('statement_timeout') OPERATOR(pg_catalog.=) '0'
            OR pg_catalog.current_setting('statement_timeout')::pg_catalog.interval
                OPERATOR(pg_catalog.>) '{milliseconds} ms'::pg_catalog.interval
            THEN '{milliseconds}'
        ELSE pg_catalog.current_setting('statement_timeout')
    END, {is_local})
