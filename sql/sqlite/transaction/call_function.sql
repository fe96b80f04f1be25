-- Calls one of SQLite's own functions of date and time.
-- Takes: FUNCTION, its name; ARGUMENTS, ?1, ?2, ... as many as it is given
-- Gives: its value
SELECT FUNCTION(ARGUMENTS)
