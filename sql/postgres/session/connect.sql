-- Readies a new session of Dialoq's: what is said is returned by the verbs instead of notified, times are UTC, and the
-- broker's views are found without their schema, after everything of the user's.
-- Takes: nothing
-- Gives: nothing
SET dialoq.client = '1';
SET TimeZone = 'UTC';
SET DateStyle = 'ISO';
SET standard_conforming_strings = on;
SELECT set_config(
    'search_path',
    CASE WHEN current_setting('search_path') IN ('', '""') THEN 'dialoq' ELSE current_setting('search_path') || ', dialoq' END,
    false
);
