-- How long each statement after it may run: the user's own SQL, if sql_timeout says so.
-- Takes: LOCAL in a transaction, else SESSION for {scope}; milliseconds for {milliseconds}
-- Gives: nothing
SET {scope} statement_timeout = {milliseconds}
