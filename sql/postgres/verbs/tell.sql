-- Tells other processes what a commit said.
-- Takes: words separated by spaces
-- Gives: nothing
-- Errors: none
-- Locks: none of ours; NOTIFY serialises commits, so call it in a transaction of its own
CREATE OR REPLACE FUNCTION dialoq.tell(p_words text) RETURNS void
LANGUAGE plpgsql SECURITY DEFINER SET search_path = dialoq, pg_temp AS $$
BEGIN
    PERFORM dialoq.notify_words(p_words);
END $$;
