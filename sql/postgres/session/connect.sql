-- Readies a new session of Dialoq's: what is said is returned by the verbs instead of notified, times are UTC, and the
-- broker's views are found without their schema, after everything of the user's. A user called dialoq has no schema of
-- that name: what it makes belongs in public, not among the broker's tables.
-- Takes: nothing
-- Gives: nothing
SET dialoq.client = '1';
SET TimeZone = 'UTC';
SET DateStyle = 'ISO';
SET standard_conforming_strings = on;
SELECT set_config('search_path', concat_ws(', ', nullif(nullif(found.path, ''), '""'), 'dialoq'), false)
FROM (
    SELECT CASE current_user
        WHEN 'dialoq' THEN regexp_replace(current_setting('search_path'), '"\$user"(, *|$)', '')
        ELSE current_setting('search_path')
    END AS path
) AS found;
