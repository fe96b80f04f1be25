-- Fills a variable of a table type from JSON, for servers without table-valued parameters that can be relied on.
-- Takes: <rows> the variable, <type> its type, <json> the parameter, <values> and <declarations> of the columns.
-- Gives: nothing; the call stands in the same batch.
DECLARE <rows> dialoq.<type>;
INSERT <rows> SELECT <values> FROM OPENJSON(<json>) WITH (<declarations>);
