-- Roles with rights on what is for the owner alone: to change tables and sequences, and to execute routines that neither dialoq_user nor
-- dialoq_admin may. By a trigger on a table such a role can do what the owner may. Superusers may anyway. Rights of this kind come from
-- ALTER DEFAULT PRIVILEGES where a dump was restored, or were granted by hand.
-- Takes: nothing
-- Gives: subject (the role), amount (of objects), since (NULL), detail (the rights)
SELECT
    CASE t.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_catalog.pg_get_userbyid(t.grantee)::text END AS subject,
    pg_catalog.count(DISTINCT (t.of, t.oid)) AS amount, NULL::bigint AS since,
    pg_catalog.string_agg(DISTINCT t.privilege_type, ', ' ORDER BY t.privilege_type) AS detail
FROM (
    SELECT 'pg_class' AS of, c.oid, a.grantee, a.privilege_type, c.relowner AS owner
    FROM pg_catalog.pg_class AS c
    CROSS JOIN LATERAL pg_catalog.aclexplode(c.relacl) AS a
    WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind IN ('r', 'v', 'S') AND (
            a.privilege_type IN ('INSERT', 'UPDATE', 'DELETE', 'TRUNCATE', 'REFERENCES', 'TRIGGER') OR c.relkind = 'S')
        -- Not what the user has made in this schema, unless a copy without comments does not say what that is.
        AND (c.relkind = 'S' AND EXISTS (
                SELECT FROM pg_catalog.pg_depend AS d JOIN pg_catalog.pg_class AS o ON o.oid = d.refobjid
                WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.refclassid = 'pg_class'::regclass
                    AND d.deptype IN ('a', 'i') AND pg_catalog.obj_description(o.oid, 'pg_class') = 'Dialoq')
            OR pg_catalog.obj_description(c.oid, 'pg_class') = 'Dialoq'
            OR pg_catalog.obj_description('dialoq.installed'::regclass, 'pg_class') IS DISTINCT FROM 'Dialoq')
    UNION ALL
    SELECT 'pg_proc', p.oid, a.grantee, a.privilege_type, p.proowner
    FROM pg_catalog.pg_proc AS p
    CROSS JOIN LATERAL pg_catalog.aclexplode(p.proacl) AS a
    WHERE p.pronamespace = 'dialoq'::regnamespace AND pg_catalog.obj_description(p.oid, 'pg_proc') = 'Dialoq') AS t
LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = t.grantee
WHERE t.grantee <> t.owner AND r.rolsuper IS NOT TRUE
GROUP BY t.grantee
ORDER BY subject
