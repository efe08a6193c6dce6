SELECT c.name, count(*), max(o.at) FROM customers c JOIN orders o ON o.customer = c.id WHERE c.id IN (17, 4711, 31415) GROUP BY c.name ORDER BY c.name;
