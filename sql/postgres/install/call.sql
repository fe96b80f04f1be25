-- Calls one of our functions in an installation that is printed.
-- Takes: <name> of the function; <arguments> in order, written out.
-- Gives: what the function gives.
SELECT dialoq.<name>(<arguments>);
