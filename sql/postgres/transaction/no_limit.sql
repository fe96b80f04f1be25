-- Ends the limit of transaction/limit.sql: the statements that follow are Dialoq's.
-- Takes: nothing
-- Gives: nothing
SET LOCAL statement_timeout TO DEFAULT
