-- Calls one of our procedures.
-- Takes: <name> of the procedure; <arguments> in order: parameters, and NULL as it is, because a NULL of no type can be any.
-- Gives: the rows of the procedure.
EXEC dialoq.<name> <arguments>;
