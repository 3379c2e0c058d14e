"""Plans, which select the resources that a proxy receives. There is a plan for each kind of proxy. Plans share
builders."""
