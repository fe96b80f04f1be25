-- Roles that may change the broker's tables: by a trigger they can do what the owner may. Superusers may anyway. A right of this kind
-- comes from ALTER DEFAULT PRIVILEGES where a dump was restored, or was granted by hand.
-- Takes: nothing
-- Gives: subject (the role), amount (of tables and views), since (NULL), detail (the rights)
SELECT
    CASE t.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_catalog.pg_get_userbyid(t.grantee)::text END AS subject,
    pg_catalog.count(DISTINCT t.oid) AS amount, NULL::bigint AS since,
    pg_catalog.string_agg(DISTINCT t.privilege_type, ', ' ORDER BY t.privilege_type) AS detail
FROM (
    SELECT c.oid, a.grantee, a.privilege_type, c.relowner,
        pg_catalog.obj_description(c.oid, 'pg_class') = 'Dialoq' OR NOT EXISTS (
            SELECT FROM pg_catalog.pg_class AS o
            WHERE o.relnamespace = c.relnamespace AND pg_catalog.obj_description(o.oid, 'pg_class') = 'Dialoq') AS is_ours
    FROM pg_catalog.pg_class AS c
    CROSS JOIN LATERAL pg_catalog.aclexplode(c.relacl) AS a
    WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind IN ('r', 'v')
        AND a.privilege_type IN ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER')) AS t
LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = t.grantee
WHERE t.is_ours AND t.grantee <> t.relowner AND r.rolsuper IS NOT TRUE
GROUP BY t.grantee
ORDER BY subject
