"""Plans choose which resources a proxy receives. Each kind of proxy has a plan of its own over shared builders."""
