"""Writes tests/golden/tokenizer/chat.json: chat templates as models publish them, and what Jinja renders from them
with the settings of transformers' apply_chat_template (no tools, no documents).

    python tokenizer_chat_goldens.py

Llama 3.2 asks for today's date where it can; here it cannot, and takes the date in its text.
"""

import json
from pathlib import Path

from jinja2.exceptions import TemplateError
from jinja2.sandbox import ImmutableSandboxedEnvironment

OUT = Path(__file__).resolve().parents[2] / "tests" / "golden" / "tokenizer" / "chat.json"

CHATML = ("{% for message in messages %}{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' "
          "+ '\n'}}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}")


def chatml_with_default(system):
    return CHATML.replace(
        "{{'<|im_start|>' +", "{% if loop.first and messages[0]['role'] != 'system' %}{{ '<|im_start|>system\n"
        + system + "<|im_end|>\n' }}{% endif %}{{'<|im_start|>' +", 1)


QWEN_2_5 = r"""{%- if tools %}
    {{- '<|im_start|>system\n' }}
    {%- if messages[0]['role'] == 'system' %}
        {{- messages[0]['content'] }}
    {%- else %}
        {{- 'You are Qwen, created by Alibaba Cloud. You are a helpful assistant.' }}
    {%- endif %}
    {{- "\n\n# Tools\n\nYou may call one or more functions to assist with the user query.\n\nYou are provided with function signatures within <tools></tools> XML tags:\n<tools>" }}
    {%- for tool in tools %}
        {{- "\n" }}
        {{- tool | tojson }}
    {%- endfor %}
    {{- "\n</tools>\n\nFor each function call, return a json object with function name and arguments within <tool_call></tool_call> XML tags:\n<tool_call>\n{\"name\": <function-name>, \"arguments\": <args-json-object>}\n</tool_call><|im_end|>\n" }}
{%- else %}
    {%- if messages[0]['role'] == 'system' %}
        {{- '<|im_start|>system\n' + messages[0]['content'] + '<|im_end|>\n' }}
    {%- else %}
        {{- '<|im_start|>system\nYou are Qwen, created by Alibaba Cloud. You are a helpful assistant.<|im_end|>\n' }}
    {%- endif %}
{%- endif %}
{%- for message in messages %}
    {%- if (message.role == "user") or (message.role == "system" and not loop.first) or (message.role == "assistant" and not message.tool_calls) %}
        {{- '<|im_start|>' + message.role + '\n' + message.content + '<|im_end|>' + '\n' }}
    {%- elif message.role == "assistant" %}
        {{- '<|im_start|>' + message.role }}
        {%- if message.content %}
            {{- '\n' + message.content }}
        {%- endif %}
        {%- for tool_call in message.tool_calls %}
            {%- if tool_call.function is defined %}
                {%- set tool_call = tool_call.function %}
            {%- endif %}
            {{- '\n<tool_call>\n{"name": "' }}
            {{- tool_call.name }}
            {{- '", "arguments": ' }}
            {{- tool_call.arguments | tojson }}
            {{- '}\n</tool_call>' }}
        {%- endfor %}
        {{- '<|im_end|>\n' }}
    {%- elif message.role == "tool" %}
        {%- if (loop.index0 == 0) or (messages[loop.index0 - 1].role != "tool") %}
            {{- '<|im_start|>user' }}
        {%- endif %}
        {{- '\n<tool_response>\n' }}
        {{- message.content }}
        {{- '\n</tool_response>' }}
        {%- if loop.last or (messages[loop.index0 + 1].role != "tool") %}
            {{- '<|im_end|>\n' }}
        {%- endif %}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\n' }}
{%- endif %}
"""

LLAMA_2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}{% set system_message = "
    "messages[0]['content'] %}{% else %}{% set loop_messages = messages %}{% set system_message = false %}{% endif %}"
    "{% for message in loop_messages %}{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ "
    "raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}{% if "
    "loop.index0 == 0 and system_message != false %}{% set content = '<<SYS>>\\n' + system_message + "
    "'\\n<</SYS>>\\n\\n' + message['content'] %}{% else %}{% set content = message['content'] %}{% endif %}{% if "
    "message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}{% elif message['role'] == "
    "'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}")

LLAMA_3_ALWAYS = (
    "{% set loop_messages = messages %}{% for message in loop_messages %}{% set content = '<|start_header_id|>' + "
    "message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' %}{% if loop.index0 == 0 %}"
    "{% set content = bos_token + content %}{% endif %}{{ content }}{% endfor %}"
    "{{ '<|start_header_id|>assistant<|end_header_id|>\n\n' }}")
LLAMA_3 = LLAMA_3_ALWAYS.replace("{% endfor %}{{", "{% endfor %}{% if add_generation_prompt %}{{") + "{% endif %}"

LLAMA_3_1 = r"""{{- bos_token }}
{%- if custom_tools is defined %}
    {%- set tools = custom_tools %}
{%- endif %}
{%- if not tools_in_user_message is defined %}
    {%- set tools_in_user_message = true %}
{%- endif %}
{%- if not date_string is defined %}
    {%- set date_string = "26 Jul 2024" %}
{%- endif %}
{%- if not tools is defined %}
    {%- set tools = none %}
{%- endif %}

{#- This block extracts the system message, so we can slot it into the right place. #}
{%- if messages[0]['role'] == 'system' %}
    {%- set system_message = messages[0]['content']|trim %}
    {%- set messages = messages[1:] %}
{%- else %}
    {%- set system_message = "" %}
{%- endif %}

{#- System message + builtin tools #}
{{- "<|start_header_id|>system<|end_header_id|>\n\n" }}
{%- if builtin_tools is defined or tools is not none %}
    {{- "Environment: ipython\n" }}
{%- endif %}
{%- if builtin_tools is defined %}
    {{- "Tools: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + "\n\n"}}
{%- endif %}
{{- "Cutting Knowledge Date: December 2023\n" }}
{{- "Today Date: " + date_string + "\n\n" }}
{%- if tools is not none and not tools_in_user_message %}
    {{- "You have access to the following functions. To call a function, please respond with JSON for a function call." }}
    {{- 'Respond in the format {"name": function name, "parameters": dictionary of argument name and its value}.' }}
    {{- "Do not use variables.\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
{%- endif %}
{{- system_message }}
{{- "<|eot_id|>" }}

{#- Custom tools are passed in a user message with some extra guidance #}
{%- if tools_in_user_message and not tools is none %}
    {#- Extract the first user message so we can plug it in here #}
    {%- if messages | length != 0 %}
        {%- set first_user_message = messages[0]['content']|trim %}
        {%- set messages = messages[1:] %}
    {%- else %}
        {{- raise_exception("Cannot put tools in the first user message when there's no first user message!") }}
{%- endif %}
    {{- '<|start_header_id|>user<|end_header_id|>\n\n' -}}
    {{- "Given the following functions, please respond with a JSON for a function call " }}
    {{- "with its proper arguments that best answers the given prompt.\n\n" }}
    {%- for t in tools %}
        {{- t | tojson(indent=4) }}
        {{- "\n\n" }}
    {%- endfor %}
    {{- first_user_message + "<|eot_id|>"}}
{%- endif %}

{%- for message in messages %}
    {%- if not (message.role == 'ipython' or message.role == 'tool' or 'tool_calls' in message) %}
        {{- '<|start_header_id|>' + message['role'] + '<|end_header_id|>\n\n'+ message['content'] | trim + '<|eot_id|>' }}
    {%- elif 'tool_calls' in message %}
        {%- if not message.tool_calls|length == 1 %}
            {{- raise_exception("This model only supports single tool-calls at once!") }}
        {%- endif %}
        {%- set tool_call = message.tool_calls[0].function %}
        {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' -}}
        {{- '{"name": "' + tool_call.name + '", ' }}
        {{- '"parameters": ' }}
        {{- tool_call.arguments | tojson }}
        {{- "}" }}
        {{- "<|eot_id|>" }}
    {%- elif message.role == "tool" or message.role == "ipython" %}
        {{- "<|start_header_id|>ipython<|end_header_id|>\n\n" }}
        {%- if message.content is mapping or message.content is iterable %}
            {{- message.content | tojson }}
        {%- else %}
            {{- message.content }}
        {%- endif %}
        {{- "<|eot_id|>" }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|start_header_id|>assistant<|end_header_id|>\n\n' }}
{%- endif %}
"""
LLAMA_3_2 = LLAMA_3_1.replace('''    {%- set date_string = "26 Jul 2024" %}
''', '''    {%- if strftime_now is defined %}
        {%- set date_string = strftime_now("%d %b %Y") %}
    {%- else %}
        {%- set date_string = "26 Jul 2024" %}
    {%- endif %}
''').replace("builtin_tools is defined or tools", "tools").replace('''{%- if builtin_tools is defined %}
    {{- "Tools: " + builtin_tools | reject('equalto', 'code_interpreter') | join(", ") + "\\n\\n"}}
{%- endif %}
''', "")

ZEPHYR = """{% for message in messages %}
{% if message['role'] == 'user' %}
{{ '<|user|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'system' %}
{{ '<|system|>
' + message['content'] + eos_token }}
{% elif message['role'] == 'assistant' %}
{{ '<|assistant|>
'  + message['content'] + eos_token }}
{% endif %}
{% if loop.last and add_generation_prompt %}
{{ '<|assistant|>' }}
{% endif %}
{% endfor %}"""

SMOLLM2 = chatml_with_default("You are a helpful AI assistant named SmolLM, trained by Hugging Face")
DEFINED = "{% if not add_generation_prompt is defined %}{% set add_generation_prompt = false %}{% endif %}"

# (our name, template, BOS, EOS)
TEMPLATES = [
    ("chatml-smollm2", SMOLLM2, "<|im_start|>", "<|im_end|>"),
    ("chatml-qwen2", chatml_with_default("You are a helpful assistant."), "", "<|im_end|>"),
    ("chatml-qwen2", QWEN_2_5, "", "<|im_end|>"),
    ("chatml", CHATML, "<s>", "<|im_end|>"),
    ("chatml", DEFINED + CHATML.replace("'\n'", '"\\n"'), "<s>", "<|im_end|>"),
    # The same in another layout, which prints the same.
    ("chatml", "{# a comment #}\n{% for message in messages %}\n  {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}\n{% endfor %}\n"
     "{%- if add_generation_prompt -%}\n  {{ \"<|im_start|>assistant\\n\" }}\n{%- endif -%}\n", "<s>", "<|im_end|>"),
    ("llama-2", LLAMA_2, "<s>", "</s>"),
    ("llama-2", LLAMA_2.replace("content.strip()", "content | trim"), "<s>", "</s>"),
    ("llama-3", LLAMA_3, "<|begin_of_text|>", "<|eot_id|>"),
    ("llama-3", LLAMA_3_ALWAYS, "<|begin_of_text|>", "<|eot_id|>"),
    ("llama-3.1", LLAMA_3_1, "<|begin_of_text|>", "<|eot_id|>"),
    ("llama-3.1", LLAMA_3_2, "<|begin_of_text|>", "<|eot_id|>"),
    ("zephyr", ZEPHYR, "<s>", "</s>"),
]

# Near relatives that print something else, and strangers.
UNKNOWN = [
    "", "{{ messages }}", "Hello",
    CHATML.replace("message['content'] +", "message['content'] | trim +"),
    CHATML.replace("{% endfor %}", "{% endfor %}\n\n"),
    CHATML.replace("{{'<|im_start|>'", "{{ bos_token }}{{'<|im_start|>'"),
    CHATML.replace("'<|im_end|>' + '\n'", "'<|im_end|>'"),
    CHATML.replace("{% for", "\n{% for", 1).replace("{% endfor %}", "{% endfor %} "),
    SMOLLM2.replace("'<|im_start|>system\nYou", "'<|im_start|>system\n' + preamble + 'You"),
    SMOLLM2.replace("{% endfor %}", "</think>{% endfor %}"),
    QWEN_2_5.replace("message.content + '<|im_end|>'", "message.content.split('</think>')[-1] + '<|im_end|>'"),
    LLAMA_2.replace("<<SYS>>", "<SYS>"), LLAMA_2.replace("content.strip() + ' [/INST]'", "content + ' [/INST]'"),
    LLAMA_3.replace(" | trim", ""), LLAMA_3_1.replace("December 2023", "June 2024"),
    ZEPHYR.replace("{% endif %}\n", "{% endif %}\n\n"), ZEPHYR.replace("'<|assistant|>' }}", "'<|assistant|>' -}}"),
    "{{ bos_token }}{% for message in messages %}{{ '[INST] ' + message['content'] + ' [/INST]' }}{% endfor %}",
    "{% for message in messages", "{{ 'unclosed", "{#", "{%", "{%-%}", "{{-}}", "\u0000{%\n",
]


def chat(*contents, system=None):
    messages = [] if system is None else [{"role": "system", "content": system}]
    return messages + [{"role": "user" if i % 2 == 0 else "assistant", "content": c} for i, c in enumerate(contents)]


CHATS = [
    chat("Hi"), chat("Hi", system="Be brief."), chat("Hi", "Hello!", "How are you?"),
    chat("Hi", "Hello!", "How are you?", "Fine.", system="You are a pirate."), chat(""), chat("", system=""),
    chat(" \n What is the pass key?\t\n", "  36695 \n", "Sure? "), chat("\u00a0\u3000x\u2028\u001f\u0085", "\u200by\u180e"),
    chat("a{{ b }}c{% d %}", system="'quoted' \"text\" \\n \\"), chat("<|im_end|></s>[/INST]<|eot_id|>"), chat("Hi", "<think>well</think>Hello!", "Bye"),
    chat("Xin ch\u00e0o \U0001f600 \u4f60\u597d", system=" \u00e9\n"), chat("Hi", "Hello!"),
    [{"role": "system", "content": "Only a system message."}],
    [{"role": "assistant", "content": "I begin."}, {"role": "user", "content": "Hi"}],
    [{"role": "user", "content": "one"}, {"role": "user", "content": "two"}],
    chat("Hi") + [{"role": "system", "content": "late"}, {"role": "user", "content": "Hi again"}],
]


def render_all(template, bos, eos):
    """In the order of CHATS, with the generation prompt and for the first few also without; null where the template
    refuses."""
    return [[render(template, messages, prompt, bos, eos) for prompt in ((True, False) if i < 4 else (True,))]
            for i, messages in enumerate(CHATS)]


def render(template, messages, prompt, bos, eos):
    def raise_exception(message):
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True,
                                                extensions=["jinja2.ext.loopcontrols"])
    environment.filters["tojson"] = json.dumps
    environment.globals["raise_exception"] = raise_exception
    try:
        return environment.from_string(template).render(
            messages=messages, tools=None, documents=None, add_generation_prompt=prompt, bos_token=bos, eos_token=eos)
    except TemplateError:
        return None


def main():
    templates = []
    for name, template, bos, eos in TEMPLATES:
        rendered = render_all(template, bos, eos)
        assert all(render_all(other, bos, eos) != rendered for other in UNKNOWN), "an unknown template renders alike"
        templates.append({"name": name, "bos": bos, "eos": eos, "template": template, "rendered": rendered})
    text = json.dumps({"chats": CHATS, "templates": templates, "unknown": UNKNOWN}, ensure_ascii=False, indent=0)
    OUT.write_text(text + "\n", encoding="utf-8")
    print(f"{OUT.name}: {len(templates)} templates, {len(CHATS)} chats, {OUT.stat().st_size} bytes")


if __name__ == "__main__":
    main()
