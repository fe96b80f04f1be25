-- The same in one flight with BEGIN. If the server refuses to begin, as after a cancel that came late, the call must not commit by
-- itself: only in a transaction of begin.sql it is deferrable. Else it fails by a division by zero.
-- Takes: its name for {name}, and its arguments, $1 to $n, for {arguments}
-- Gives: what it gives
SELECT * FROM (SELECT WHERE 1 OPERATOR(pg_catalog./) (pg_catalog.current_setting('transaction_deferrable')
    OPERATOR(pg_catalog.=) 'on')::pg_catalog.int4 OPERATOR(pg_catalog.=) 1) AS in_transaction
CROSS JOIN LATERAL dialoq.{name}({arguments}) /* client */
