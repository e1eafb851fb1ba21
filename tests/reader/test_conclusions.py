"""Answers and refusals are read in every language that pytrace tells apart, as people write them."""

import pytest

from pytrace.certify.response_parsing import parse_response
from pytrace.documents import languages
from pytrace.methods.cot.rationales import parse_thought
from pytrace.reader.conclusions import _DATA, LANGUAGES, abstentions, is_abstention

# Of each language two steps, a conclusion and its answer; and a refusal.
TABLE = {
    "am": ("1. ኮርፉ ግሪክ ውስጥ ነው።\n2. ግሪኮች ግሪክኛ ይናገራሉ።\nስለዚህ መልሱ ግሪክኛ ነው።", "ግሪክኛ", "አላውቅም።"),
    "ar": ("1. كورفو في اليونان.\n2. يتحدثون هناك اليونانية.\nلذلك الجواب هو اليونانية.", "اليونانية", "لا أعرف."),
    "bn": ("১. কর্ফু গ্রিসে অবস্থিত।\n২. গ্রিসের ভাষা গ্রিক।\nসুতরাং উত্তর হলো গ্রিক।", "গ্রিক", "আমি জানি না।"),
    "cs": ("1. Korfu leží v Řecku.\n2. V Řecku se mluví řecky.\nTakže odpověď je: řečtina.", "řečtina", "Nevím."),
    "da": ("1. Korfu ligger i Grækenland.\n2. Der taler man græsk.\nDerfor er svaret: Svaret er græsk.", "græsk", "Jeg ved det ikke."),
    "de": ("1. Korfu liegt in Griechenland.\n2. Dort spricht man Griechisch.\n**Antwort:** Griechisch", "Griechisch", "Ich weiß es nicht."),
    "el": ("1. Η Κέρκυρα είναι στην Ελλάδα.\n2. Εκεί μιλούν ελληνικά.\nΆρα, η απάντηση είναι ελληνικά.", "ελληνικά", "Δεν γνωρίζω."),
    "es": ("1. Corfú está en Grecia.\n2. Allí se habla griego.\nPor lo tanto, la respuesta es griego.", "griego", "No lo sé."),
    "fa": ("۱. کورفو در یونان است.\n۲. زبان یونان یونانی است.\nبنابراین پاسخ نهایی یونانی است.", "یونانی", "نمی‌دانم."),
    "fi": ("1. Korfu on Kreikassa.\n2. Siellä puhutaan kreikkaa.\nJoten vastaus on kreikka.", "kreikka", "En tiedä."),
    "fr": ("1. Corfou est en Grèce.\n2. On y parle grec.\nDonc la réponse est : le grec.", "le grec", "Je ne sais pas."),  # codespell:ignore sais
    "gu": ("1. કોર્ફુ ગ્રીસમાં છે.\n2. ગ્રીસની ભાષા ગ્રીક છે.\nતેથી જવાબ છે: ગ્રીક.", "ગ્રીક", "મને ખબર નથી."),
    "he": ("1. קורפו נמצאת ביוון.\n2. ביוון מדברים יוונית.\nלכן התשובה היא יוונית.", "יוונית", "אני לא יודע."),
    "hi": ("१. कोर्फू यूनान में है।\n२. यूनान की भाषा यूनानी है।\nइसलिए सही उत्तर यूनानी है।", "यूनानी", "मुझे नहीं पता।"),
    "hu": ("1. lépés: Korfu Görögországban van.\n2. lépés: Ott görögül beszélnek.\nTehát a válasz: görög.", "görög", "Nem tudom."),
    "hy": ("1. Կորֆուն Հունաստանում է։\n2. Այնտեղ խոսում են հունարեն։\nՈւստի պատասխանն է՝ հունարեն։", "հունարեն", "Չգիտեմ։"),
    "id": ("1. Korfu terletak di Yunani.\n2. Di sana orang berbahasa Yunani.\nJadi, jawabannya adalah Yunani.", "Yunani", "Saya tidak tahu."),
    "it": ("1. Corfù è in Grecia.\n2. Là si parla greco.\nQuindi la risposta è greco.", "greco", "Non lo so."),
    "ja": ("1. コルフはギリシャにある。\n2. そこではギリシャ語が話される。\nしたがって、答えはギリシャ語です。", "ギリシャ語", "わかりません。"),
    "ka": ("1. კორფუ საბერძნეთშია.\n2. იქ ბერძნულად ლაპარაკობენ.\nამიტომ პასუხია: ბერძნული.", "ბერძნული", "არ ვიცი."),
    "km": ("1. កូហ្វូនៅក្រិក។\n2. គេនិយាយភាសាក្រិក។\nដូច្នេះ ចម្លើយគឺ ភាសាក្រិក។", "ភាសាក្រិក", "ខ្ញុំមិនដឹងទេ។"),
    "kn": ("1. ಕೊರ್ಫು ಗ್ರೀಸ್‌ನಲ್ಲಿದೆ.\n2. ಅಲ್ಲಿ ಗ್ರೀಕ್ ಮಾತನಾಡುತ್ತಾರೆ.\nಆದ್ದರಿಂದ ಅಂತಿಮ ಉತ್ತರ: ಗ್ರೀಕ್.", "ಗ್ರೀಕ್", "ನನಗೆ ಗೊತ್ತಿಲ್ಲ."),
    "ko": ("1단계: 코르푸는 그리스에 있다.\n2단계: 그리스에서는 그리스어를 쓴다.\n따라서 정답은 그리스어입니다.", "그리스어", "모르겠습니다."),
    "lo": ("1. ຄໍຟູຢູ່ໃນເກຣັກ.\n2. ຢູ່ນັ້ນເວົ້າພາສາເກຣັກ.\nດັ່ງນັ້ນ ຄຳຕອບແມ່ນ ພາສາເກຣັກ.", "ພາສາເກຣັກ", "ຂ້ອຍບໍ່ຮູ້."),
    "ml": ("1. കോർഫു ഗ്രീസിലാണ്.\n2. അവിടെ ഗ്രീക്ക് സംസാരിക്കുന്നു.\nഅതിനാൽ ശരിയായ ഉത്തരം ഗ്രീക്ക് ആണ്.", "ഗ്രീക്ക്", "എനിക്കറിയില്ല."),
    "my": ("1. ကော်ဖူသည် ဂရိတွင် ရှိသည်။\n2. ဂရိဘာသာ ပြောကြသည်။\nထို့ကြောင့် အဖြေမှာ ဂရိဘာသာ ဖြစ်သည်။", "ဂရိဘာသာ", "မသိပါ။"),
    "nl": ("1. Corfu ligt in Griekenland.\n2. Daar spreekt men Grieks.\nDus het antwoord is Grieks.", "Grieks", "Ik weet het niet."),
    "no": ("1. Korfu ligger i Hellas.\n2. Der snakker man gresk.\nSå svaret er gresk.", "gresk", "Jeg vet ikke."),
    "pa": ("1. ਕੋਰਫੂ ਯੂਨਾਨ ਵਿੱਚ ਹੈ।\n2. ਉੱਥੇ ਯੂਨਾਨੀ ਬੋਲੀ ਜਾਂਦੀ ਹੈ।\nਇਸ ਲਈ ਸਹੀ ਜਵਾਬ ਯੂਨਾਨੀ ਹੈ।", "ਯੂਨਾਨੀ", "ਮੈਨੂੰ ਨਹੀਂ ਪਤਾ।"),
    "pl": ("1. Korfu leży w Grecji.\n2. Mówi się tam po grecku.\nZatem odpowiedź to grecki.", "grecki", "Nie wiem."),
    "pt": ("1. Corfu fica na Grécia.\n2. Lá fala-se grego.\nPortanto, a resposta é grego.", "grego", "Não sei."),
    "ro": ("1. Corfu se află în Grecia.\n2. Acolo se vorbește greaca.\nDeci răspunsul este greaca.", "greaca", "Nu știu."),
    "ru": ("Шаг 1: Корфу в Греции.\nШаг 2: Там говорят по-гречески.\nСледовательно, ответ: греческий.", "греческий", "Я не знаю."),
    "sv": ("1. Korfu ligger i Grekland.\n2. Där talar man grekiska.\nDärför: svaret är grekiska.", "grekiska", "Jag vet inte."),
    "ta": ("1. கோர்ஃபு கிரேக்கத்தில் உள்ளது.\n2. அங்கு கிரேக்கம் பேசப்படுகிறது.\nஎனவே சரியான பதில்: கிரேக்கம்.", "கிரேக்கம்", "எனக்குத் தெரியாது."),
    "te": ("1. కోర్ఫు గ్రీస్‌లో ఉంది.\n2. అక్కడ గ్రీకు మాట్లాడతారు.\nకాబట్టి సరైన సమాధానం: గ్రీకు.", "గ్రీకు", "నాకు తెలియదు."),
    "th": ("1. คอร์ฟูอยู่ในกรีซ\n2. ที่นั่นพูดภาษากรีก\nดังนั้น คำตอบคือ ภาษากรีก", "ภาษากรีก", "ไม่ทราบ"),
    "tr": ("1. Korfu Yunanistan'dadır.\n2. Orada Yunanca konuşulur.\nBu nedenle cevap: Yunanca.\nCevap: Yunanca", "Yunanca", "Bilmiyorum."),
    "uk": ("1. Корфу розташований у Греції.\n2. Там розмовляють грецькою.\nОтже, відповідь: грецька.", "грецька", "Я не знаю."),
    "ur": ("1. کورفو یونان میں ہے۔\n2. وہاں یونانی بولی جاتی ہے۔\nاس لیے صحیح جواب یونانی ہے۔", "یونانی", "مجھے نہیں معلوم۔"),
    "vi": ("Bước 1: Corfu nằm ở Hy Lạp.\nBước 2: Ở đó người ta nói tiếng Hy Lạp.\nDo đó, câu trả lời là tiếng Hy Lạp.", "tiếng Hy Lạp", "Tôi không biết."),
    "zh": ("1. 科孚岛在希腊。\n2. 希腊人说希腊语。\n因此，最终答案是：希腊语。", "希腊语", "我不知道。"),
}  # fmt: skip


def test_the_table_has_every_language_that_is_told_apart() -> None:
    told = set(languages._DATA["scripts"]) | set(languages._DATA["function_words"])
    told |= {code for others in languages._OWN_LETTERS.values() for code in others}
    assert set(TABLE) == LANGUAGES == told - {"en"}


@pytest.mark.parametrize("language", TABLE)
def test_steps_a_conclusion_and_a_refusal_are_read_in_a_language(language: str) -> None:
    response, answer, refusal = TABLE[language]
    parsed = parse_response(response)
    assert (parsed.form, len(parsed.steps), parsed.answer) == ("structured", 2, answer)
    assert parse_thought(response).answer == answer
    assert parse_response(refusal).form == "abstained"


@pytest.mark.parametrize("language", TABLE)
def test_every_phrase_of_a_language_is_read(language: str) -> None:
    phrases = _DATA[language]
    answers, refusals = phrases.answer.split("|"), phrases.abstention.split("|")
    for answer in answers:
        for before in ("", f"{phrases.therefore.split('|')[0]} "):
            response = f"1. Corfu – Ellada.\n2. Ellada – Elliniki.\n{before}{answer} Elliniki."
            parsed = parse_response(response)
            assert (parsed.form, len(parsed.steps), parsed.answer) == ("structured", 2, "Elliniki"), response
            assert parse_thought(response).answer == "Elliniki", response
    for refusal in refusals:
        assert parse_response(f"{refusal.capitalize()}.").form == "abstained", refusal
        assert parse_response(f"1. Corfu – Ellada.\n{answers[0]} {refusal}.").form == "abstained", refusal
    for step in filter(None, phrases.step.split("|")):
        response = f"**{step} 1:** Corfu – Ellada.\n**{step} 2:** Ellada – Elliniki.\n\n**{answers[-1]}** Elliniki"
        assert parse_response(response).steps == ("Corfu – Ellada.", "Ellada – Elliniki."), response


def test_a_refusal_in_the_place_of_the_answer_abstains_in_the_language_of_its_conclusion() -> None:
    for text in ("1. Korfu.\nAntwort: unbekannt", "1. Corfu.\nResposta: desconhecida.", "1. 科孚岛。\n答案：未知"):
        assert parse_response(text).form == "abstained"
    assert parse_response("1. Corfu.\nAnswer: Unbekannt").form == "structured"


def test_one_word_that_refuses_elsewhere_is_a_name_in_a_longer_text() -> None:
    assert is_abstention("Inconnu.")
    assert not is_abstention("Inconnu is a fish of the north.")
    assert is_abstention("Nie wiem, gdzie to jest.")
    assert abstentions("Where is it?") == ()
