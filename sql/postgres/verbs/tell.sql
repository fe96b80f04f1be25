-- Tells other processes what a commit said.
-- Takes: words separated by spaces
-- Gives: nothing
-- Errors: 60005
-- Locks: none of ours; NOTIFY serialises commits, so call it in a transaction of its own
CREATE OR REPLACE FUNCTION dialoq.tell(p_words text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = pg_catalog, pg_temp AS $$
BEGIN
    IF p_words !~ '^[a-z](:[0-9A-Za-z-]{1,40})?( [a-z](:[0-9A-Za-z-]{1,40})?)*$' THEN
        PERFORM dialoq.fail(60005, format('the words are ''%s''; they must be like ''q:1 c d:0'', with one space between',
            left(p_words, 60)));
    END IF;
    PERFORM dialoq.notify_words(p_words);
END $$;
