-- The same in one flight with BEGIN. If the server refuses to begin, as after a cancel that came late, the call must not commit by
-- itself: only in a transaction of begin.sql it is deferrable. Else it fails by a division by zero.
-- Takes: its name for {name}, and its arguments, $1 to $n, for {arguments}
-- Gives: what it gives
SELECT * FROM (SELECT WHERE 1 / (current_setting('transaction_deferrable') = 'on')::integer = 1) AS in_transaction
CROSS JOIN LATERAL dialoq.{name}({arguments}) /* client */
