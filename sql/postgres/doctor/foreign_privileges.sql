-- Roles with rights on what is for the owner alone: to change tables, views and sequences, and to execute routines that neither dialoq_user
-- nor dialoq_admin may. By a trigger on a table such a role can do what the owner may. Superusers may anyway. Rights of this kind come
-- from ALTER DEFAULT PRIVILEGES where a dump was restored, or were granted by hand. `dialoq install` takes away what this finds.
-- What the user has made in this schema is not ours. In a copy without comments, ours is what has the name of a table or view of this
-- version.
-- Takes: nothing
-- Gives: subject (the role), amount (of objects), since (NULL), detail (the rights)
WITH marks AS (
    SELECT pg_catalog.obj_description('dialoq.installed'::regclass, 'pg_class') IS NOT DISTINCT FROM 'Dialoq' AS are_there
), relations AS (
    SELECT c.oid, c.relkind, c.relacl, c.relowner
    FROM pg_catalog.pg_class AS c CROSS JOIN marks AS m
    WHERE c.relnamespace = 'dialoq'::regnamespace AND c.relkind IN ('r', 'v')
        AND CASE WHEN m.are_there THEN pg_catalog.obj_description(c.oid, 'pg_class') = 'Dialoq'
            ELSE c.relname IN (
                -- <each table> 'NAME',
                -- <each view> 'NAME',
                'installed')
            END
), rights AS (
    SELECT 'pg_class' AS of, r.oid, a.grantee, a.privilege_type, r.relowner AS owner
    FROM relations AS r CROSS JOIN LATERAL pg_catalog.aclexplode(r.relacl) AS a
    WHERE a.privilege_type <> 'SELECT'
    UNION ALL
    SELECT 'pg_class', r.oid, a.grantee, a.privilege_type, r.relowner
    FROM relations AS r
    JOIN pg_catalog.pg_attribute AS t ON t.attrelid = r.oid AND t.attacl IS NOT NULL
    CROSS JOIN LATERAL pg_catalog.aclexplode(t.attacl) AS a
    WHERE a.privilege_type <> 'SELECT'
    UNION ALL
    SELECT 'pg_class', s.oid, a.grantee, a.privilege_type, s.relowner
    FROM relations AS r
    JOIN pg_catalog.pg_depend AS d ON d.refclassid = 'pg_class'::regclass AND d.refobjid = r.oid
        AND d.classid = 'pg_class'::regclass AND d.deptype IN ('a', 'i')
    JOIN pg_catalog.pg_class AS s ON s.oid = d.objid AND s.relkind = 'S'
    CROSS JOIN LATERAL pg_catalog.aclexplode(s.relacl) AS a
    UNION ALL
    SELECT 'pg_proc', p.oid, a.grantee, a.privilege_type, p.proowner
    FROM pg_catalog.pg_proc AS p CROSS JOIN marks AS m
    CROSS JOIN LATERAL pg_catalog.aclexplode(coalesce(p.proacl, pg_catalog.acldefault('f', p.proowner))) AS a
    WHERE p.pronamespace = 'dialoq'::regnamespace AND CASE WHEN m.are_there
        THEN pg_catalog.obj_description(p.oid, 'pg_proc') = 'Dialoq'
        -- Which routines are for users is not known before an installation has marked them.
        ELSE p.proname = 'record_installation' END
)
SELECT
    CASE t.grantee WHEN 0 THEN 'PUBLIC' ELSE pg_catalog.pg_get_userbyid(t.grantee)::text END AS subject,
    pg_catalog.count(DISTINCT (t.of, t.oid)) AS amount, NULL::bigint AS since,
    pg_catalog.string_agg(DISTINCT t.privilege_type, ', ' ORDER BY t.privilege_type) AS detail
FROM rights AS t
LEFT JOIN pg_catalog.pg_roles AS r ON r.oid = t.grantee
WHERE t.grantee <> t.owner AND r.rolsuper IS NOT TRUE
GROUP BY t.grantee
ORDER BY subject
