-- Calls a function of schema dialoq.
-- Takes: its name for {name}, and its arguments, $1 to $n, for {arguments}
-- Gives: what it gives
SELECT * FROM dialoq.{name}({arguments})
