-- Calls a function of schema dialoq. The mark tells it that its notices are read (rules/notices.sql).
-- Takes: its name for {name}, and its arguments, $1 to $n, for {arguments}
-- Gives: what it gives
SELECT * FROM dialoq.{name}({arguments}) /* client */
